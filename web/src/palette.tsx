/** The command palette (Ctrl+K, ⌘K): every command and every run, by a few letters of its name. */
import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { navigate } from "./address";
import { known } from "./data/state";
import { matchScore } from "./fuzzy";
import { commands, shownKeys } from "./keys";
import { Dialog } from "./ui/dialog";
import { Dot, Progress } from "./ui/run-label";
import "./palette.css";

const open = signal(false);
const MOST = 40;

export function openPalette(): void {
  open.value = true;
}

interface Entry {
  id: string;
  text: string;
  kind: string;
  run(): void;
  keys?: string[];
  runId?: string;
}

/** What a person may mean by a few letters, the best first; without letters the commands. */
function entriesFor(typed: string): Entry[] {
  const entries: Entry[] = commands.value
    .filter((command) => !command.keyOnly && (command.when?.() ?? true))
    .map((command) => ({
      id: `${command.section}:${command.text}`,
      text: command.text,
      kind: command.section,
      keys: shownKeys(command),
      run: () => command.run(),
    }));
  const unique = [...new Map(entries.reverse().map((entry) => [entry.id, entry])).values()].reverse();
  if (!typed.trim()) return unique.slice(0, MOST);
  const runs = [...known.value.values()].map(
    (row): Entry => ({
      id: `run:${row.id}`,
      text: row.name === row.id ? row.id : `${row.name} ${row.id}`,
      kind: "run",
      runId: row.id,
      run: () => navigate(`/run/${encodeURIComponent(row.id)}`),
    }),
  );
  return [...unique, ...runs]
    .map((entry) => ({ entry, score: matchScore(typed, entry.text) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, MOST)
    .map(({ entry }) => entry);
}

export function Palette() {
  return open.value ? <OpenPalette onClose={() => (open.value = false)} /> : null;
}

function OpenPalette({ onClose }: { onClose(): void }) {
  const [typed, setTyped] = useState("");
  const [at, setAt] = useState(0);
  const list = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const entries = entriesFor(typed);
  const chosen = Math.min(at, entries.length - 1);
  useEffect(() => {
    list.current?.querySelector('[aria-selected="true"]')?.scrollIntoView({ block: "nearest" });
  }, [chosen]);

  function take(entry: Entry | undefined): void {
    if (!entry) return;
    onClose();
    setTimeout(() => entry.run()); // once the dialog has given the focus back
  }
  function onKeyDown(event: KeyboardEvent): void {
    const step = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (step) {
      event.preventDefault();
      setAt((chosen + step + entries.length) % Math.max(1, entries.length));
    } else if (event.key === "Enter") {
      event.preventDefault();
      take(entries[chosen]);
    }
  }
  return (
    <Dialog title="Commands and runs" kind="palette" onClose={onClose}>
      <input
        ref={field}
        class="palette-input"
        type="text"
        role="combobox"
        aria-label="Command or run"
        aria-expanded="true"
        aria-controls="palette-list"
        aria-activedescendant={entries[chosen] ? `palette-${chosen}` : undefined}
        placeholder="A command, or the name of a run"
        autocomplete="off"
        spellcheck={false}
        value={typed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setAt(0);
        }}
        onKeyDown={onKeyDown}
      />
      <div class="palette-list" id="palette-list" role="listbox" aria-label="Results" ref={list}>
        {entries.map((entry, index) => (
          <div
            key={entry.id}
            id={`palette-${index}`}
            class="palette-entry"
            role="option"
            tabIndex={-1}
            aria-selected={index === chosen}
            onClick={() => take(entry)}
            onMouseMove={() => index !== chosen && setAt(index)}
          >
            {entry.runId !== undefined ? <RunEntry id={entry.runId} /> : <span class="clip">{entry.text}</span>}
            <span class="grow" />
            {entry.keys?.map((key) => (
              <kbd key={key}>{key}</kbd>
            ))}
            <small class="faint">{entry.kind}</small>
          </div>
        ))}
        {!entries.length && <p class="palette-none faint">Nothing is called like that.</p>}
      </div>
    </Dialog>
  );
}

function RunEntry({ id }: { id: string }) {
  const row = known.value.get(id);
  return (
    <>
      <Dot id={id} />
      <span class="clip">{row?.name ?? id}</span>
      <Progress id={id} />
    </>
  );
}
