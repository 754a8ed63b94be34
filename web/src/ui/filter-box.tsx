/** The filter of runs: what `linnet runs --where` takes, coloured while it is typed; what is wrong with it in words. */
import { useEffect, useRef, useState } from "preact/hooks";
import { filter, table } from "../data/state";
import type { RunTable } from "../data/types";
import { queryParts, unknownColumns } from "./query";
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

/** What is wrong with a filter: as the server says it, or names that no run has. */
function problemOf(typed: string, answer: RunTable | null): string | null {
  if (!typed.trim() || !answer) return null;
  if (answer.problem) return answer.problem;
  const [unknown] = answer.rows.length ? [] : unknownColumns(typed, answer.settings, answer.metrics);
  return unknown === undefined ? null : `no run has a setting or metric called ${unknown}`;
}

export function FilterBox() {
  const [typed, setTyped] = useState(filter.value);
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
  const problem = problemOf(typed, table.value);
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
          type="text"
          aria-label="Filter runs"
          aria-describedby="filter-problem"
          placeholder="loss<2 recipe:warm-start tag:baseline"
          title="Words, or comparisons of settings and metrics: loss<2 and lr>=1e-3 and tag:base (/)"
          autocomplete="off"
          autocapitalize="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => type(event.currentTarget.value)}
          onScroll={(event) => {
            if (coloured.current) coloured.current.scrollLeft = event.currentTarget.scrollLeft;
          }}
          onKeyDown={(event) => {
            if (event.key === "Escape") {
              event.preventDefault();
              if (typed) type("");
              else event.currentTarget.blur();
            } else if (event.key === "Enter") {
              clearTimeout(timer.current);
              filter.value = typed.trim();
              event.currentTarget.blur();
            }
          }}
        />
        {typed && (
          <button type="button" class="filter-clear" aria-label="No filter" onClick={() => type("")}>
            ×
          </button>
        )}
      </div>
      <p id="filter-problem" class="filter-problem" role="status">
        {problem}
      </p>
    </div>
  );
}
