/** What can be done to runs: tags, a name, a note, hiding, deleting. Each says what it did, and how to take it back. */
import { signal } from "@preact/signals";
import { address, navigate } from "../address";
import { applyRows, board, isMarked, known, marked, nameOf, refreshTable, source } from "../data/state";
import type { RunRow } from "../data/types";
import { problem, toast } from "../ui/toast";
import { plural } from "../words";

/** The dialog that is open, and the runs it is about. */
export type Question = { kind: "delete" | "tags" | "name" | "note"; ids: readonly string[] };
export const question = signal<Question | null>(null);

/** Whether anything may be changed here. */
export function isWritable(): boolean {
  return board.value?.writable ?? false;
}

export function ask(kind: Question["kind"], ids: readonly string[]): void {
  if (ids.length && isWritable()) question.value = { kind, ids };
}

/** Runs in words: the name of one, the number of several. */
export function runsInWords(ids: readonly string[]): string {
  return ids.length === 1 && ids[0] !== undefined ? nameOf(ids[0]) : plural(ids.length, "run");
}

/** Does the same to each run, one after the other, and says what failed; gives the runs that it worked for. */
async function forEachRun(ids: readonly string[], act: (id: string) => Promise<RunRow | null>): Promise<string[]> {
  const done: string[] = [];
  const rows: RunRow[] = [];
  for (const id of ids) {
    try {
      const row = await act(id);
      if (row) rows.push(row);
      done.push(id);
    } catch (error) {
      problem(error);
    }
  }
  applyRows(rows, []);
  void refreshTable();
  return done;
}

export async function setHidden(ids: readonly string[], hidden: boolean): Promise<void> {
  const done = await forEachRun(ids, (id) => source().change(id, { hidden }));
  if (!done.length) return;
  const undo = { text: "Undo", run: () => void setHidden(done, !hidden) };
  toast(`${runsInWords(done)} ${hidden ? "hidden" : "shown again"}`, { action: undo });
}

export async function changeTags(ids: readonly string[], add: string[], remove: string[]): Promise<void> {
  const before = new Map(ids.map((id) => [id, known.peek().get(id)?.tags ?? []]));
  const done = await forEachRun(ids, (id) => source().change(id, { add_tags: add, remove_tags: remove }));
  if (!done.length) return;
  const takeBack = (id: string) => {
    const had = before.get(id) ?? [];
    return source().change(id, {
      add_tags: remove.filter((tag) => had.includes(tag)),
      remove_tags: add.filter((tag) => !had.includes(tag)),
    });
  };
  const words = [...add.map((tag) => `+${tag}`), ...remove.map((tag) => `−${tag}`)].join(" ");
  toast(`${runsInWords(done)}: ${words}`, { action: { text: "Undo", run: () => void forEachRun(done, takeBack) } });
}

export async function rename(id: string, name: string): Promise<void> {
  const before = nameOf(id);
  const done = await forEachRun([id], () => source().change(id, { name }));
  const takeBack = () => void forEachRun(done, () => source().change(id, { name: before === id ? "" : before }));
  if (done.length) toast(`${before} is now called ${name || id}`, { action: { text: "Undo", run: takeBack } });
}

export async function addNote(ids: readonly string[], text: string): Promise<void> {
  const done = await forEachRun(ids, async (id) => {
    await source().addNote(id, text);
    return null;
  });
  if (done.length) toast(`noted of ${runsInWords(done)}`);
}

export async function remove(ids: readonly string[]): Promise<void> {
  const name = runsInWords(ids);
  const done = await forEachRun(ids, async (id) => {
    await source().remove(id);
    return null;
  });
  if (!done.length) return;
  applyRows([], done);
  const gone = new Set(done);
  const [page, open] = address.peek().path;
  if (page === "run" && open !== undefined && gone.has(open)) navigate("/runs");
  if (done.some((id) => isMarked.peek().has(id))) marked.replace(marked.peek().filter((id) => !gone.has(id)));
  toast(`${done.length === ids.length ? name : plural(done.length, "run")} deleted`, {
    action: { text: "Undo", run: () => void restore(done) },
  });
}

async function restore(ids: readonly string[]): Promise<void> {
  const done = await forEachRun(ids, (id) => source().restore(id));
  if (done.length) toast(`${runsInWords(done)} back again`);
}
