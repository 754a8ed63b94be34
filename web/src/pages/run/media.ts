// The files of media as docs/run-folder.md describes them: tables (JSON or CSV) and histograms.
import type { ArtifactSeries } from "../../data/types";
import type { Cell } from "../../ui/data-table";

export type ArtifactItem = ArtifactSeries["items"][number];
export interface TableContent {
  columns: string[];
  rows: Cell[][];
  /** More rows or columns were there than are shown. */
  cut: boolean;
}
export interface HistogramContent {
  counts: number[];
  edges: number[];
}

const MOST_ROWS = 100_000;
const MOST_COLUMNS = 200;
const NONFINITE: Record<string, number> = {
  nan: Number.NaN,
  inf: Number.POSITIVE_INFINITY,
  "-inf": Number.NEGATIVE_INFINITY,
};

/** A logged table; an Error that says what is wrong with it. */
export function readTable(text: string, mime: string): TableContent {
  if (mime.includes("csv") || !text.trimStart().startsWith("{")) return readCsv(text);
  const content = restored(JSON.parse(text));
  const { columns, rows } = content;
  if (!Array.isArray(columns) || !Array.isArray(rows)) throw new Error("this is no table: it has no columns and rows");
  return bounded(
    columns.map(String),
    rows.map((row) => (Array.isArray(row) ? row.map(asCell) : [])),
  );
}

function bounded(columns: string[], rows: Cell[][]): TableContent {
  const cut = rows.length > MOST_ROWS || columns.length > MOST_COLUMNS;
  return { columns: columns.slice(0, MOST_COLUMNS), rows: rows.slice(0, MOST_ROWS), cut };
}

/** A logged histogram; an Error that says what is wrong with it. */
export function readHistogram(text: string): HistogramContent {
  const { counts, edges } = restored(JSON.parse(text));
  const areNumbers = (list: unknown): list is number[] =>
    Array.isArray(list) && list.every((entry) => typeof entry === "number");
  if (!areNumbers(counts) || !areNumbers(edges) || edges.length !== counts.length + 1) {
    throw new Error("this is no histogram: it needs counts and one edge more");
  }
  return { counts, edges };
}

function asCell(value: unknown): Cell {
  if (value === null || value === undefined) return null;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
  return JSON.stringify(value);
}

/** Puts NaN and infinities back where `nonfinite` says they are: {"rows.0.3": "nan"}. */
function restored(content: unknown): Record<string, unknown> {
  if (typeof content !== "object" || content === null) throw new Error("this is no JSON object");
  const fields = content as Record<string, unknown>;
  for (const [path, word] of Object.entries(fields.nonfinite ?? {})) {
    const parts = path.split(".");
    const last = parts.pop() ?? "";
    let target: unknown = fields;
    for (const part of parts)
      target = typeof target === "object" && target !== null ? (target as Record<string, unknown>)[part] : null;
    const isPlace = typeof target === "object" && target !== null && Object.hasOwn(target, last);
    if (isPlace && typeof word === "string" && word in NONFINITE)
      (target as Record<string, unknown>)[last] = NONFINITE[word];
  }
  return fields;
}

/** CSV with quotes; the first line names the columns, cells that are numbers become numbers. */
export function readCsv(text: string): TableContent {
  const lines: string[][] = [];
  const cells = /(?:"((?:[^"]|"")*)"|([^,\r\n]*))(,|\r?\n|\r|$)/gy;
  let line: string[] = [];
  for (let match = cells.exec(text); match && lines.length <= MOST_ROWS + 1; match = cells.exec(text)) {
    line.push(match[1] !== undefined ? match[1].replaceAll('""', '"') : (match[2] ?? ""));
    if (match[3] === ",") continue;
    if (line.length > 1 || line[0] !== "") lines.push(line);
    line = [];
    if (match[3] === "") break;
  }
  const [columns = [], ...rows] = lines;
  const widest = Math.max(columns.length, ...rows.slice(0, 1000).map((row) => row.length));
  const names = Array.from({ length: widest }, (_, index) => columns[index] ?? `column ${index + 1}`);
  return bounded(
    names,
    rows.map((row) => row.map((cell) => (cell.trim() !== "" && Number.isFinite(Number(cell)) ? Number(cell) : cell))),
  );
}

/** Which columns hold numbers. */
export function numericColumns({ columns, rows }: TableContent): boolean[] {
  return columns.map((_, index) => {
    const values = rows.slice(0, 500).map((row) => row[index]);
    return values.some((value) => typeof value === "number") && values.every((value) => typeof value !== "string");
  });
}

/** At most `most` of them, evenly, the last among them. */
export function thinned<T>(items: readonly T[], most: number): T[] {
  if (items.length <= most) return [...items];
  return Array.from({ length: most }, (_, index) => items[Math.round((index * (items.length - 1)) / (most - 1))] as T);
}

/** Counts of histograms with different edges on one grid, as shares of each: a heat map over steps. */
export function commonGrid(
  histograms: readonly HistogramContent[],
  bins = 48,
): { low: number; high: number; shares: number[][] } {
  const low = Math.min(...histograms.map(({ edges }) => edges[0] ?? 0));
  const high = Math.max(...histograms.map(({ edges }) => edges.at(-1) ?? 0));
  const width = (high - low || 1) / bins;
  const shares = histograms.map(({ counts, edges }) => {
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    const grid = new Array<number>(bins).fill(0);
    counts.forEach((count, index) => {
      const from = edges[index] ?? 0;
      const to = edges[index + 1] ?? from;
      const first = Math.min(bins - 1, Math.max(0, Math.floor((from - low) / width)));
      const last = Math.min(bins - 1, Math.max(first, Math.ceil((to - low) / width) - 1));
      for (let bin = first; bin <= last; bin++) {
        const overlap = Math.min(to, low + (bin + 1) * width) - Math.max(from, low + bin * width);
        const share = to > from ? Math.max(0, overlap / (to - from)) : 1 / (last - first + 1);
        grid[bin] = (grid[bin] ?? 0) + (count / total) * share;
      }
    });
    return grid;
  });
  return { low, high, shares };
}
