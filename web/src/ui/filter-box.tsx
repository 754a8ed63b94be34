/** The filter of runs: what `linnet runs --where` takes, coloured while it is typed; what is wrong with it in words. */
import type { TargetedKeyboardEvent } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { filter, known, table } from "../data/state";
import { queryParts } from "./query";
import { type Suggestion, suggestions, wordBefore } from "./suggestions";
import "./filter-box.css";

const TYPING = 160; // milliseconds between keystrokes of one thought
export const FILTER_ID = "filter";

/** Puts the keyboard into the filter, wherever one is on the screen. */
export function focusFilter(): void {
  const field = document.getElementById(FILTER_ID);
  if (field instanceof HTMLInputElement) {
    field.focus();
    field.select();
  }
}

export function FilterBox() {
  const [typed, setTyped] = useState(filter.value);
  const [caret, setCaret] = useState(0);
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const field = useRef<HTMLInputElement>(null);
  const coloured = useRef<HTMLDivElement>(null);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const given = filter.value;
  useEffect(() => {
    clearTimeout(timer.current);
    setTyped(given); // Back, or a link
  }, [given]);
  useEffect(() => () => clearTimeout(timer.current), []);

  function type(value: string): void {
    setTyped(value);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => filter.replace(value.trim()), TYPING);
  }
  const problem = typed.trim() ? (table.value?.problem ?? null) : null;
  const word = wordBefore(typed, caret);
  const offered = open && table.value ? suggestions(word, { ...table.value, rows: [...known.value.values()] }) : [];
  function take(suggestion: Suggestion): void {
    const before = typed.slice(0, caret - word.length) + suggestion.text;
    const input = field.current;
    type(before + typed.slice(caret));
    setOpen(suggestion.kind === "word");
    setChosen(-1);
    setCaret(before.length);
    requestAnimationFrame(() => input?.setSelectionRange(before.length, before.length));
  }
  function onKeyDown(event: TargetedKeyboardEvent<HTMLInputElement>): void {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    const suggestion = offered[event.key === "Tab" ? Math.max(0, chosen) : chosen];
    if (step && offered.length) {
      event.preventDefault();
      setChosen((chosen + step + offered.length + (chosen < 0 && step < 0 ? 1 : 0)) % offered.length);
    } else if (suggestion && (event.key === "Enter" || (event.key === "Tab" && !event.shiftKey))) {
      event.preventDefault();
      take(suggestion);
    } else if (event.key === "Escape") {
      event.preventDefault();
      if (offered.length) setOpen(false);
      else if (typed) type("");
      else event.currentTarget.blur();
    } else if (event.key === "Enter") {
      clearTimeout(timer.current);
      filter.value = typed.trim();
      event.currentTarget.blur();
    }
  }
  return (
    <div class="filter" role="search">
      <div class={`filter-field${problem ? " wrong" : ""}`}>
        <div class="filter-colours" aria-hidden="true" ref={coloured}>
          {queryParts(typed).map((part, index) => (
            <span key={index} class={part.kind}>
              {part.text}
            </span>
          ))}
        </div>
        <input
          id={FILTER_ID}
          ref={field}
          type="text"
          role="combobox"
          aria-label="Filter runs"
          aria-autocomplete="list"
          aria-expanded={offered.length > 0}
          aria-controls="filter-suggestions"
          aria-activedescendant={chosen >= 0 ? `filter-suggestion-${chosen}` : undefined}
          aria-describedby="filter-problem"
          placeholder="filter, as in loss<2 tag:baseline"
          title="Words, or comparisons of settings and metrics: loss<2 and lr>=1e-3 and tag:base (/)"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => {
            type(event.currentTarget.value);
            setCaret(event.currentTarget.selectionStart ?? 0);
            setOpen(true);
            setChosen(-1);
          }}
          onScroll={(event) => {
            if (coloured.current) coloured.current.scrollLeft = event.currentTarget.scrollLeft;
          }}
          onSelect={(event) => setCaret(event.currentTarget.selectionStart ?? typed.length)}
          onBlur={() => setOpen(false)}
          onKeyDown={onKeyDown}
        />
        {typed && (
          <button type="button" class="filter-clear" aria-label="No filter" onClick={() => type("")}>
            ×
          </button>
        )}
      </div>
      <div id="filter-suggestions" class="filter-suggestions" role="listbox" aria-label="Suggestions">
        {offered.map((suggestion, index) => (
          <div
            key={suggestion.text}
            id={`filter-suggestion-${index}`}
            class="filter-suggestion"
            role="option"
            aria-selected={index === chosen}
            onMouseDown={(event) => {
              event.preventDefault(); // the field keeps the keyboard
              take(suggestion);
            }}
          >
            <span class="mono clip">{suggestion.text}</span>
            <small class="faint">{suggestion.kind}</small>
          </div>
        ))}
      </div>
      <p id="filter-problem" class="filter-problem" role="status">
        {problem}
      </p>
    </div>
  );
}
