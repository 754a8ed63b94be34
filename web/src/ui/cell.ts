/** What stands in a cell of the table of runs, for people; the same as board/run_columns.py. */
import type { ShownColumn } from "../data/listing";
import type { RunRow } from "../data/types";
import { duration, moment, number } from "../words";

const ABSENT = "–";

export function cellText(row: RunRow, column: ShownColumn): string {
  const value = row.values[column.index];
  if (value === null || value === undefined || value === "") return ABSENT;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (column.kind === "field" && typeof value === "number") {
    if (column.term === "time" || column.term === "age") return duration(value);
    if (column.term === "created") return moment(value).slice(0, 16);
  }
  if (typeof value === "number") return column.kind === "setting" ? settingNumber(value) : number(value);
  if (column.kind === "metric" && (value === "nan" || value === "inf" || value === "-inf")) return number(value);
  return value;
}

/** A setting as a person would have typed it: `3e-3` and not `0.003000`. */
function settingNumber(value: number): string {
  return String(Number(value.toPrecision(6)));
}
