import { useState } from "preact/hooks";
import { choice, pageParam, text } from "../../address";
import { useLoaded } from "../../data/loaded";
import { board, source } from "../../data/state";
import type { LogEntry } from "../../data/types";
import { useCommands } from "../../keys";
import { Button } from "../../ui/button";
import { CommandLine, Empty } from "../../ui/empty";
import { Segmented } from "../../ui/segmented";
import { problem as tellProblem } from "../../ui/toast";
import { count, duration, plural } from "../../words";
import "./journal.css";

const levelParam = pageParam("level", choice("all", "warnings", "errors"), "all");
const wordsParam = pageParam("words", text, "");
const NOTE_FIELD = "note-text";

/** What people remarked, the latest first, and a field that writes one. */
export function NotesTab({ id }: { id: string }) {
  const { value, problem } = useLoaded(id, "notes", (run, signal) => source().notes(run, signal), ["notes"]);
  const [typed, setTyped] = useState("");
  const [isSending, setSending] = useState(false);
  const [written, setWritten] = useState<readonly string[]>([]);
  useCommands([
    { keys: ["n"], section: "notes", text: "write a note", run: () => document.getElementById(NOTE_FIELD)?.focus() },
  ]);
  async function send(): Promise<void> {
    const note = typed.trim();
    if (!note || isSending) return;
    setSending(true);
    try {
      await source().addNote(id, note);
      setWritten([...written, note]);
      setTyped("");
    } catch (error) {
      tellProblem(error);
    }
    setSending(false);
  }
  const notes = [...(value ?? [])].reverse();
  const pending = written.filter((note) => !notes.some((known) => known.text === note));
  return (
    <div class="notes">
      {board.value?.writable ? (
        <form
          onSubmit={(event) => {
            event.preventDefault();
            void send();
          }}
        >
          <label class="unseen" for={NOTE_FIELD}>
            A note about this run
          </label>
          <textarea
            id={NOTE_FIELD}
            class="field"
            rows={3}
            placeholder="What did you see, try, or want to remember?"
            value={typed}
            onInput={(event) => setTyped(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void send();
            }}
          />
          <div class="notes-send">
            <span class="faint">It is kept in the run’s folder, as plain text.</span>
            <Button submit kind="main" disabled={!typed.trim() || isSending}>
              Add note
            </Button>
          </div>
        </form>
      ) : (
        value?.length === 0 && (
          <Empty title="No notes">
            <CommandLine text={`linnet note ${id} "…"`} />
          </Empty>
        )
      )}
      {problem && <p class="warn">{problem}</p>}
      <ol class="note-list">
        {pending.map((note) => (
          <li key={note} class="dim">
            <p>{note}</p>
          </li>
        ))}
        {notes.map((note) => (
          <li key={`${note.t} ${note.text}`}>
            <p>{note.text}</p>
            <small class="faint">
              {[
                note.at ? localTime(note.at) : `after ${duration(note.t)}`,
                note.step !== null && `step ${count(note.step)}`,
              ]
                .filter(Boolean)
                .join(" · ")}
            </small>
          </li>
        ))}
      </ol>
    </div>
  );
}

function localTime(at: string): string {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? at.slice(0, 40) : time.toLocaleString();
}

/** Entries of a level and with words; "warnings" has errors among them. */
export function filterLog(
  entries: readonly LogEntry[],
  level: "all" | "warnings" | "errors",
  words: string,
): LogEntry[] {
  const wanted = level === "all" ? null : level === "errors" ? ["error"] : ["warning", "error"];
  const parts = words.toLowerCase().split(/\s+/).filter(Boolean);
  return entries.filter((entry) => {
    const low = entry.text.toLowerCase();
    return (wanted === null || wanted.includes(entry.level)) && parts.every((part) => low.includes(part));
  });
}

const MARKS: Record<LogEntry["level"], string> = { info: "", warning: "▲", error: "✕" };

/** Turns, warnings and damaged lines, the latest first. */
export function LogTab({ id }: { id: string }) {
  const { value, problem } = useLoaded(id, "log", (run, signal) => source().log(run, signal), ["log", "status"]);
  if (!value) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading the log …"}</p>;
  const entries = filterLog(value, levelParam.value, wordsParam.value).reverse();
  const warnings = value.filter(({ level }) => level !== "info").length;
  return (
    <>
      <div class="toolbar">
        <Segmented
          label="Level"
          options={["all", "warnings", "errors"]}
          value={levelParam.value}
          onChange={(level) => {
            levelParam.value = level;
          }}
        />
        <input
          class="search"
          type="search"
          placeholder="filter"
          aria-label="Filter the log"
          value={wordsParam.value}
          onInput={(event) => wordsParam.replace(event.currentTarget.value)}
        />
        <span class="faint">
          {entries.length === value.length
            ? plural(value.length, "entry", "entries")
            : `${count(entries.length)} of ${count(value.length)}`}
          {warnings > 0 && ` · ${count(warnings)} to look at`}
        </span>
      </div>
      <ol class="log" aria-label="Log">
        {entries.map((entry, index) => (
          <li key={`${entry.t} ${index}`} class={entry.level}>
            <span class="log-time">{duration(entry.t)}</span>
            <span class="log-step">{entry.step === null ? "" : count(entry.step)}</span>
            <span class="log-mark">
              <span aria-hidden="true">{MARKS[entry.level]}</span>
              {entry.level !== "info" && <span class="unseen">{entry.level}: </span>}
            </span>
            <span class="log-text">{entry.text}</span>
          </li>
        ))}
      </ol>
      {value.length >= 1000 && <p class="faint">The latest 1,000 entries; events.jsonl has them all.</p>}
    </>
  );
}
