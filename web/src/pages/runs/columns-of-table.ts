/** The columns of the table of runs: what every table has, and between it what somebody chose. */
import type { ShownColumn } from "../../data/listing";

export interface TableColumn {
  id: "mark" | "run" | "status" | "step" | "curve" | "last" | "best" | "time" | "age" | "chosen";
  label: string;
  /** What the table is ordered by at a click; empty: nothing. */
  sort: string;
  width: number;
  right: boolean;
  title?: string;
  column?: ShownColumn;
}

/** Pixels: a phone. */
export const NARROW = 640;
const MEDIUM = 980;
export const NAME_WIDTH = 190;

/** As many columns as a width has room for: of a phone the name, the curve and the last value. */
export function tableColumns(width: number, chosen: readonly ShownColumn[], metric: string | undefined): TableColumn[] {
  const narrow = width < NARROW;
  const value = metric ?? "value";
  const columns: TableColumn[] = [
    { id: "mark", label: "", sort: "", width: 36, right: false },
    { id: "run", label: "run", sort: "run", width: narrow ? 110 : NAME_WIDTH, right: false },
  ];
  if (!narrow) {
    columns.push({ id: "status", label: "status", sort: "status", width: 84, right: false });
    columns.push({ id: "step", label: "step", sort: "step", width: 112, right: true });
  }
  columns.push({ id: "curve", label: value, sort: "", width: narrow ? 64 : 84, right: false });
  columns.push({
    id: "last",
    label: "last",
    sort: "last",
    width: narrow ? 56 : 64,
    right: true,
    title: `last ${value}`,
  });
  if (narrow) return columns;
  columns.push({ id: "best", label: "best", sort: "best", width: 64, right: true, title: `best ${value}` });
  for (const column of chosen) {
    const width = column.numeric ? Math.min(140, Math.max(64, 20 + 6.5 * column.label.length)) : 104;
    columns.push({ id: "chosen", label: column.label, sort: column.term, width, right: column.numeric, column });
  }
  columns.push({ id: "time", label: "time", sort: "time", width: 76, right: true, title: "how long it trained" });
  if (width >= MEDIUM) {
    columns.push({ id: "age", label: "age", sort: "age", width: 48, right: true, title: "since its last event" });
  }
  return columns;
}

export function gridTemplate(columns: readonly TableColumn[]): string {
  return columns.map(({ id, width }) => (id === "run" ? `minmax(${width}px, 1fr)` : `${width}px`)).join(" ");
}

/** What the columns take at least, with the gaps between them and the edges. */
export function leastWidth(columns: readonly TableColumn[]): number {
  return columns.reduce((sum, { width }) => sum + width, 0) + 12 * (columns.length - 2) + 16;
}
