/**
 * What somebody chose to see first: pinned, moved, hidden and resized charts.
 *
 * It is in the address, so that a view can be sent, and this browser remembers it for each folder of runs. An address
 * that says nothing of it gets what was remembered.
 */
import { batch, computed, effect, untracked } from "@preact/signals";
import { type Codec, flag, list, type Param, pageParam, setParams } from "../../address";
import { board, remember, remembered } from "../../data/state";

/** How many columns and rows of the grid a chart takes. */
export interface ChartSize {
  readonly columns: number;
  readonly rows: number;
}

export interface ChartPreferences {
  readonly pinned: readonly string[];
  readonly hidden: readonly string[];
  /** Those that were moved, and their neighbours. */
  readonly order: readonly string[];
  readonly sizes: ReadonlyMap<string, ChartSize>;
  /** Constants have charts too. */
  readonly constants: boolean;
  /** Sections that are folded; `sys` is unless it is named here. */
  readonly folded: readonly string[];
}

export const MOST_COLUMNS = 4;
export const MOST_ROWS = 4;
const SMALL: ChartSize = { columns: 1, rows: 1 };

const sizesCodec: Codec<ReadonlyMap<string, ChartSize>> = {
  parse: (typed) => {
    const sizes = new Map<string, ChartSize>();
    for (const word of list.parse(typed) ?? []) {
      const [, key, columns, rows] = /^(.+):(\d)x(\d)$/.exec(word) ?? [];
      if (key) sizes.set(key, bounded({ columns: Number(columns), rows: Number(rows) }));
    }
    return sizes;
  },
  format: (sizes) => list.format([...sizes].map(([key, { columns, rows }]) => `${key}:${columns}x${rows}`)),
};

const pinned = pageParam("pin", list, []);
const hidden = pageParam("hide", list, []);
const order = pageParam("order", list, []);
const sizes = pageParam("size", sizesCodec, new Map());
const constants = pageParam("constants", flag, false);
const folded = pageParam("fold", list, ["sys"]);
/** Each with its text in the address: empty where nothing was chosen. */
const PARAMS = [chosen(pinned), chosen(hidden), chosen(order), chosen(sizes), chosen(constants), chosen(folded)];

function chosen<T>(param: Param<T>): { name: string; given: () => boolean; text: () => string } {
  return { name: param.name, given: () => param.given, text: () => param.format(param.value) };
}

export const preferences = computed<ChartPreferences>(() => ({
  pinned: pinned.value,
  hidden: hidden.value,
  order: order.value,
  sizes: sizes.value,
  constants: constants.value,
  folded: folded.value,
}));

/**
 * How large a chart is in a grid of so many columns; `main`: it is the main one, which is larger unless somebody chose
 * otherwise, and leaves a column for its neighbours.
 */
export function sizeOf(key: string, main: boolean, columns: number): ChartSize {
  return sizes.value.get(key) ?? (main ? { columns: Math.min(3, Math.max(2, columns - 1)), rows: 2 } : SMALL);
}

export function bounded({ columns, rows }: ChartSize): ChartSize {
  return {
    columns: Math.min(MOST_COLUMNS, Math.max(1, columns)),
    rows: Math.min(MOST_ROWS, Math.max(1, rows)),
  };
}

export function setSize(key: string, size: ChartSize): void {
  sizes.replace(new Map([...sizes.peek(), [key, bounded(size)]]));
  keep();
}

export function togglePinned(key: string): void {
  pinned.replace(toggled(pinned.peek(), key));
  keep();
}

export function toggleHidden(key: string): void {
  batch(() => {
    if (pinned.peek().includes(key)) pinned.replace(toggled(pinned.peek(), key));
    hidden.replace(toggled(hidden.peek(), key));
  });
  keep();
}

export function toggleConstants(): void {
  constants.replace(!constants.peek());
  keep();
}

export function toggleFolded(section: string): void {
  folded.replace(toggled(folded.peek(), section));
  keep();
}

/** Puts a chart at another's place within its section, whose charts are `members`. */
export function moveTo(key: string, index: number, members: readonly string[]): void {
  const others = members.filter((other) => other !== key);
  const at = Math.min(Math.max(0, index), others.length);
  const moved = [...others.slice(0, at), key, ...others.slice(at)];
  if (pinned.peek().includes(key)) pinned.replace(moved);
  else order.replace([...moved, ...order.peek().filter((other) => !moved.includes(other))]);
  keep();
}

/** All charts as without any choice. */
export function resetPreferences(): void {
  setParams(Object.fromEntries(PARAMS.map((param) => [param.name, ""])), { replace: true });
  keep();
}

function toggled(names: readonly string[], name: string): readonly string[] {
  return names.includes(name) ? names.filter((other) => other !== name) : [...names, name];
}

function storageKey(): string | null {
  const root = board.peek()?.root;
  return root === undefined ? null : `linnet.charts:${root}`;
}

/** Remembers the choices of now for this folder of runs. */
function keep(): void {
  const storage = storageKey();
  if (storage === null) return;
  const choices = Object.fromEntries(PARAMS.map(({ name, text }) => [name, text()]).filter(([, text]) => text));
  remember(storage, Object.keys(choices).length ? JSON.stringify(choices) : null);
}

/** Brings back what was remembered, as soon as the folder is known, unless the address says something. */
export function restorePreferences(): () => void {
  let done = false;
  return effect(() => {
    if (done || board.value === null) return;
    done = true;
    untracked(() => {
      const kept = stored(storageKey() ?? "");
      if (PARAMS.every(({ given }) => !given())) setParams(kept, { replace: true });
    });
  });
}

/** What was remembered: texts of parameters that there are. Damage costs the choices and nothing else. */
function stored(storage: string): Record<string, string> {
  try {
    const kept: unknown = JSON.parse(remembered(storage) ?? "{}");
    if (typeof kept !== "object" || kept === null) return {};
    const names = new Set<string>(PARAMS.map((param) => param.name));
    return Object.fromEntries(
      Object.entries(kept).filter(
        (entry): entry is [string, string] => names.has(entry[0]) && typeof entry[1] === "string",
      ),
    );
  } catch {
    return {};
  }
}
