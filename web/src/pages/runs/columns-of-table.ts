/** The columns of the table of runs: what every table has, and between it what somebody chose. */
import { computed } from "@preact/signals";
import { type ShownColumn, shownColumns } from "../../data/listing";
import { mainMetric } from "../../side/side";

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

const NARROW = 640; // pixels: a phone
const MEDIUM = 980;
export const NAME_WIDTH = 220;

/** As many columns as a width has room for: of a phone the name, the curve and the last value. */
export function tableColumns(width: number, chosen: readonly ShownColumn[], metric: string | undefined): TableColumn[] {
  const narrow = width < NARROW;
  const value = metric ?? "value";
  const columns: TableColumn[] = [
    { id: "mark", label: "", sort: "", width: 36, right: false },
    { id: "run", label: "run", sort: "run", width: narrow ? 120 : NAME_WIDTH, right: false },
  ];
  if (!narrow) {
    columns.push({ id: "status", label: "status", sort: "status", width: 104, right: false });
    columns.push({ id: "step", label: "step", sort: "step", width: 116, right: true });
  }
  columns.push({ id: "curve", label: narrow ? "" : value, sort: "", width: narrow ? 64 : 92, right: false });
  columns.push({ id: "last", label: "last", sort: "last", width: 72, right: true, title: `last ${value}` });
  columns.push({ id: "best", label: "best", sort: "best", width: 72, right: true, title: `best ${value}` });
  if (narrow) return columns;
  for (const column of chosen) {
    const width = column.numeric ? Math.max(76, 24 + 7 * column.label.length) : 124;
    columns.push({ id: "chosen", label: column.label, sort: column.term, width, right: column.numeric, column });
  }
  columns.push({ id: "time", label: "time", sort: "time", width: 84, right: true, title: "how long it trained" });
  if (width >= MEDIUM) {
    columns.push({ id: "age", label: "age", sort: "age", width: 60, right: true, title: "since its last event" });
  }
  return columns;
}

export function gridTemplate(columns: readonly TableColumn[]): string {
  return columns
    .map(({ id, width }) => (id === "run" ? `minmax(${width}px, 1fr)` : id === "mark" ? `${width}px` : `${width}px`))
    .join(" ");
}

/** What the columns take at least, with the gaps between them and the edges. */
export function leastWidth(columns: readonly TableColumn[]): number {
  return columns.reduce((sum, { width }) => sum + width, 0) + 12 * (columns.length - 1) + 16;
}

export const columnsFor = (width: number) => computed(() => tableColumns(width, shownColumns.value, mainMetric.value));
