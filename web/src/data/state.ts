/** What all pages share: the source, the folder and its table of runs, which runs are shown, colours, theme. */
import { batch, computed, effect, signal } from "@preact/signals";
import { flag, list, onParams, setParams, sharedParam, text } from "../address";
import { Changes } from "./changes";
import { assignColours, COLOURS } from "./colours";
import { Marks } from "./marks";
import type { Source, TableQuery } from "./source";
import type { BoardInfo, RunRow, RunTable } from "./types";

let givenSource: Source | null = null;

/** The source of this page; set once, before anything is drawn. */
export function source(): Source {
  if (!givenSource) throw new Error("the source of data is not set");
  return givenSource;
}

export const board = signal<BoardInfo | null>(null);
export const table = signal<RunTable | null>(null);
/** Why there is no table, in words. */
export const tableProblem = signal<string | null>(null);
/** The one stream of changes of this page. */
export const changes = new Changes();

/** Parameters that make the table: filter, columns, order, grouping. */
export const filter = sharedParam("q", text, "");
export const columns = sharedParam("columns", list, []);
/** In place of columns: none at all, where an empty list is the server's own choice. */
export const NO_COLUMNS = "none";
export const sort = sharedParam("sort", text, "");
export const reverse = sharedParam("reverse", flag, false);
export const group = sharedParam("group", text, "");
export const withHidden = sharedParam("hidden", flag, false);
/** Runs somebody chose, by id; empty: nobody did. */
export const marked = new Marks(sharedParam("runs", list, []));

/** Runs below those they were forked from. */
export const family = sharedParam("tree", flag, false);
/** Groups of which only the head is listed, by their keys. */
export const foldedGroups = sharedParam("folded", list, []);
/** The run at which the keyboard is, in the table and in the list beside a page. */
export const cursor = signal<string | null>(null);

/** Rows by run; also of runs that the filter leaves out, as far as they have been seen. */
export const known = signal<ReadonlyMap<string, RunRow>>(new Map());

const SHOWN_BY_DEFAULT = 6;
export const MOST_SHOWN = 100;

/** The runs that charts, samples and comparisons show: those marked, else those of the command line, else the newest. */
export const shown = computed<readonly string[]>((): readonly string[] => {
  const runs = shownNow();
  const same = runs.length === lastShown.length && runs.every((id, index) => id === lastShown[index]);
  if (!same) lastShown = runs;
  return lastShown; // the same list while it is: a table that comes anew draws no chart anew
});
let lastShown: readonly string[] = [];

function shownNow(): readonly string[] {
  if (marked.value.length) return marked.value.slice(0, MOST_SHOWN);
  const chosen = board.value?.chosen ?? [];
  if (chosen.length) return chosen.slice(0, MOST_SHOWN);
  const rows = [...(table.value?.rows ?? [])].filter((row) => !row.hidden && row.step !== null);
  rows.sort((a, b) => Number(b.status === "live") - Number(a.status === "live") || b.created - a.created);
  return rows.slice(0, SHOWN_BY_DEFAULT).map((row) => row.id);
}
export const isShown = computed(() => new Set(shown.value));
export const isMarked = computed(() => new Set(marked.value));

export function nameOf(id: string): string {
  return known.value.get(id)?.name ?? id;
}

/** The baselines of runs, as far as they are not among these: charts show their lines faintly. */
export function baselinesOf(ids: readonly string[]): string[] {
  const named = ids.flatMap((id) => known.value.get(id)?.compare_to ?? []);
  return [...new Set(named)].filter((id) => !ids.includes(id));
}

let assigned: ReadonlyMap<string, number> = new Map();
/** Of the runs that are shown: no two alike as long as there are colours enough. */
const shownColours = computed(() => {
  const rows = known.value;
  const ready = shown.value.filter((id) => rows.has(id));
  const next = assignColours(ready, (id) => rows.get(id)?.colour ?? 0, assigned);
  const same = next.size === assigned.size && [...next].every(([id, colour]) => assigned.get(id) === colour);
  if (!same) assigned = next;
  return assigned;
});

function colourNumber(id: string): number {
  return shownColours.value.get(id) ?? known.value.get(id)?.colour ?? COLOURS - 1;
}

/** The colour of a run, for styles. */
export function colourOf(id: string): string {
  return `var(--c${colourNumber(id) + 1})`;
}

/** The same for a canvas, which knows no variables: it changes with the theme. */
export function paintOf(id: string): string {
  return paints.value[colourNumber(id)] ?? "#888";
}

export type Theme = "light" | "dark";
const THEME_KEY = "linnet.theme";
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const systemTheme = signal<Theme>(systemDark.matches ? "dark" : "light");
systemDark.addEventListener("change", () => {
  systemTheme.value = systemDark.matches ? "dark" : "light";
});
/** Light or dark if somebody chose, else null: as the system has it. */
export const chosenTheme = signal<Theme | null>(storedTheme());
export const theme = computed<Theme>(() => chosenTheme.value ?? systemTheme.value);

const paints = computed(() => {
  document.documentElement.dataset.theme = theme.value;
  const style = getComputedStyle(document.documentElement);
  return Array.from({ length: 12 }, (_, index) => style.getPropertyValue(`--c${index + 1}`).trim());
});

/** A token of the theme for a canvas: `token("line")`. */
export function token(name: string): string {
  document.documentElement.dataset.theme = theme.value;
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function storedTheme(): Theme | null {
  const stored = remembered(THEME_KEY);
  return stored === "light" || stored === "dark" ? stored : null;
}

/** What this browser keeps; null where it keeps nothing (a private window, a file). */
export function remembered(key: string): string | null {
  try {
    return localStorage.getItem(key);
  } catch {
    return null;
  }
}

export function remember(key: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(key);
    else localStorage.setItem(key, value);
  } catch {
    // a browser that keeps nothing costs the choice and nothing else
  }
}

const tableQuery = computed<TableQuery>(() => ({
  where: filter.value,
  columns: columns.value.filter((term) => term !== NO_COLUMNS),
  sort: sort.value,
  reverse: reverse.value,
  group: group.value,
  hidden: withHidden.value,
}));

let asking: AbortController | null = null;
let lastTook = 0; // milliseconds of the last answer

/** Asks for the table anew; an answer that a later question overtook is dropped. */
export async function refreshTable(): Promise<void> {
  asking?.abort();
  const asked = new AbortController();
  asking = asked;
  const began = performance.now();
  try {
    const answer = await source().table(tableQuery.peek(), asked.signal);
    if (asked.signal.aborted) return;
    lastTook = performance.now() - began;
    batch(() => {
      table.value = answer;
      tableProblem.value = null;
      known.value = new Map([...known.peek(), ...answer.rows.map((row) => [row.id, row] as const)]);
    });
  } catch (error) {
    if (!asked.signal.aborted) tableProblem.value = error instanceof Error ? error.message : String(error);
  }
  if (asking !== asked) return;
  asking = null;
  if (table.peek()?.unread && tableProblem.peek() === null) void refreshTable();
}

const ALL_RUNS: TableQuery = { where: "", columns: [], sort: "", reverse: false, group: "", hidden: true };
const soughtRuns = new Set<string>();

/** Names, colours and status of runs that are shown, as an address may say, though they are filtered out or hidden. */
async function findShown(): Promise<void> {
  const missing = shown.value.filter((id) => !known.peek().has(id) && !soughtRuns.has(id));
  if (!table.value || !missing.length) return;
  for (const id of missing) soughtRuns.add(id);
  const { rows } = await source().table(ALL_RUNS);
  known.value = new Map([...rows.map((row) => [row.id, row] as const), ...known.peek()]);
}

const SOON = 300; // milliseconds: a run came or went
const LATER = 5000; // what runs are ordered, grouped or filtered by may have changed
const SOON_REST = 2; // a table that takes a second is asked for after two seconds, for the sake of order after ten
const LATER_REST = 10;
let due = Number.POSITIVE_INFINITY;
let timer: ReturnType<typeof setTimeout> | undefined;

/** Asks for the table anew after a while; an earlier time counts, and a question that is under way is waited for. */
function refreshIn(milliseconds: typeof SOON | typeof LATER): void {
  const wait = Math.max(milliseconds, (milliseconds === SOON ? SOON_REST : LATER_REST) * lastTook);
  const at = performance.now() + wait;
  if (at >= due) return;
  due = at;
  clearTimeout(timer);
  timer = setTimeout(() => {
    due = Number.POSITIVE_INFINITY;
    if (asking) refreshIn(milliseconds);
    else void refreshTable();
  }, wait);
}

/**
 * Rows that changed, put in place at once, also those that the filter leaves out; order, groups and chosen columns
 * follow with the next table.
 */
export function applyRows(rows: readonly RunRow[], gone: readonly string[]): void {
  const now = table.peek();
  if (!now) return;
  const fresh = new Map(known.peek());
  let comesOrGoes = false;
  const put = (before: RunRow | undefined, row: RunRow) => {
    comesOrGoes ||= statusChanged(before, row);
    fresh.set(row.id, before ? { ...row, values: before.values } : row);
  };
  for (const row of rows) put(fresh.get(row.id), row);
  for (const id of gone) {
    const before = fresh.get(id);
    if (before) put(before, { ...before, status: "gone" });
  }
  refreshIn(comesOrGoes ? SOON : LATER);
  batch(() => {
    table.value = { ...now, rows: now.rows.map((row) => fresh.get(row.id) ?? row) };
    known.value = fresh;
  });
}

function statusChanged(before: RunRow | undefined, now: RunRow): boolean {
  return before?.status !== now.status || before.hidden !== now.hidden || before.name !== now.name;
}

/** Choices that this browser keeps for a folder; what the address says counts more. */
const KEPT = [columns, group, sort, reverse, family] as const;

function keepChoices(root: string): void {
  const key = (name: string) => `linnet.${name} ${root}`;
  const kept = KEPT.map((param) => [param.name, param.given ? null : remembered(key(param.name))] as const);
  setParams(Object.fromEntries(kept.filter((pair): pair is readonly [string, string] => pair[1] !== null)), {
    replace: true,
  });
  onParams((changes) => {
    for (const { name } of KEPT) {
      if (changes[name] !== undefined) remember(key(name), changes[name] || null);
    }
  });
}

/** Begins: learns of the folder, loads its table, and follows what changes. */
export function start(chosenSource: Source): void {
  givenSource = chosenSource;
  effect(() => {
    document.documentElement.dataset.theme = theme.value;
    if (chosenSource.live) remember(THEME_KEY, chosenTheme.value); // of files, one browser keeps all in one place
  });
  paints.peek(); // while the page is empty: to ask for colours means to work out the style of all of it
  void begin(chosenSource);
  changes.onRuns((event) => applyRows(event.rows, event.gone));
  changes.onReconnect(() => void refreshTable());
  setTimeout(() => changes.start(chosenSource)); // after what the first view asks for
}

async function begin(chosenSource: Source): Promise<void> {
  try {
    board.value = await chosenSource.board();
    if (chosenSource.live) keepChoices(board.value.root);
  } catch (error) {
    tableProblem.value = error instanceof Error ? error.message : String(error);
  }
  effect(() => {
    tableQuery.value;
    void refreshTable();
  });
  effect(() => {
    findShown().catch(() => {}); // whoever cannot ask is told so by the table
  });
}
