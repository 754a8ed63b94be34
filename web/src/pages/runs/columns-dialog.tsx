/** Which columns the table has: taken in, left out, put in order. Remembered for the folder, and in the address. */
import { useState } from "preact/hooks";
import { shownColumns } from "../../data/listing";
import { columns, NO_COLUMNS, table } from "../../data/state";
import { matchScore } from "../../fuzzy";
import { Button } from "../../ui/button";
import { Dialog } from "../../ui/dialog";
import "./columns-dialog.css";

const FIELDS = ["recipe", "experiment", "group", "parent", "tags", "created", "writer"];
const MOST = 60;

/** A list with one entry moved to another place. */
export function moved<T>(list: readonly T[], from: number, to: number): T[] {
  const others = list.toSpliced(from, 1);
  const entry = list[from];
  return entry === undefined ? [...list] : others.toSpliced(Math.max(0, Math.min(others.length, to)), 0, entry);
}

/** Terms that fit what was typed; `best(…)` of metrics too. What is no name at all is taken as it is: loss@200. */
export function candidates(typed: string, settings: readonly string[], metrics: readonly string[]): string[] {
  const results = metrics.flatMap((key) => [`last(${key})`, `best(${key})`]);
  const all = [...new Set([...settings, ...results, ...FIELDS])];
  if (!typed.trim()) return all;
  const fitting = all
    .map((term) => ({ term, score: matchScore(typed, term) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .map(({ term }) => term);
  return /[@(]/.test(typed) ? [...new Set([typed.trim(), ...fitting])] : fitting;
}

export function ColumnsDialog({ onClose }: { onClose(): void }) {
  const [typed, setTyped] = useState("");
  const [dragged, setDragged] = useState<number | null>(null);
  const chosen = columns.value.length
    ? columns.value.filter((term) => term !== NO_COLUMNS)
    : shownColumns.value.map((column) => column.term);
  const offered = candidates(typed, table.value?.settings ?? [], table.value?.metrics ?? []);
  const addable = offered.filter((term) => !chosen.includes(term));
  const set = (terms: readonly string[]) => (columns.value = terms.length ? terms : [NO_COLUMNS]);
  return (
    <Dialog
      title="Columns"
      onClose={onClose}
      actions={
        <>
          <Button onClick={() => (columns.value = [])} disabled={!columns.value.length}>
            Settings that differ
          </Button>
          <Button kind="main" onClick={onClose}>
            Done
          </Button>
        </>
      }
    >
      {table.value?.problem && <p class="warn">{table.value.problem}</p>}
      <ol class="column-list" aria-label="Shown">
        {chosen.map((term, index) => (
          <li
            key={term}
            draggable
            data-dragged={dragged === index || undefined}
            onDragStart={() => setDragged(index)}
            onDragEnd={() => setDragged(null)}
            onDragOver={(event) => {
              event.preventDefault();
              if (dragged !== null && dragged !== index) {
                set(moved(chosen, dragged, index));
                setDragged(index);
              }
            }}
          >
            <span class="grip" aria-hidden="true">
              ⠿
            </span>
            <span class="mono clip grow">{term}</span>
            <button
              type="button"
              aria-label={`${term} to the left`}
              disabled={index === 0}
              onClick={() => set(moved(chosen, index, index - 1))}
            >
              ↑
            </button>
            <button
              type="button"
              aria-label={`${term} to the right`}
              disabled={index === chosen.length - 1}
              onClick={() => set(moved(chosen, index, index + 1))}
            >
              ↓
            </button>
            <button type="button" aria-label={`Without ${term}`} onClick={() => set(chosen.toSpliced(index, 1))}>
              ×
            </button>
          </li>
        ))}
        {!chosen.length && <li class="faint">none beside those that every table has</li>}
      </ol>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          const [first] = addable;
          if (first !== undefined && typed.trim()) {
            set([...chosen, first]);
            setTyped("");
          }
        }}
      >
        <input
          class="field mono"
          aria-label="Find a column"
          placeholder="a setting or metric: lr, best(loss), loss@200"
          autocomplete="off"
          spellcheck={false}
          value={typed}
          onInput={(event) => setTyped(event.currentTarget.value)}
        />
      </form>
      <ul class="column-offer" aria-label="To add">
        {addable.slice(0, MOST).map((term) => (
          <li key={term}>
            <button type="button" class="mono" onClick={() => set([...chosen, term])}>
              + {term}
            </button>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
