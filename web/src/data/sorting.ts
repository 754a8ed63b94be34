/** The order of the table: a click on a column orders by it, another turns it round, a third ends it. */
import { setParams } from "../address";
import { reverse, sort } from "./state";

/** A column is known by its term and, in an address that a person typed, by its last part: `lr` for `config.lr`. */
function isSortedBy(term: string): boolean {
  return sort.value === term || (sort.value !== "" && term.endsWith(`.${sort.value}`));
}

export function sortBy(term: string): void {
  if (!isSortedBy(term)) setParams({ sort: term, reverse: "" });
  else if (!reverse.value) setParams({ reverse: "1" });
  else setParams({ sort: "", reverse: "" });
}

export type Direction = "ascending" | "descending" | "none";

/** Which way a column is ordered. `goal`: of results the best come first, and the best may be the greatest. */
export function directionOf(term: string, goal: "min" | "max" | null = null): Direction {
  if (!isSortedBy(term)) return "none";
  return reverse.value !== (goal === "max") ? "descending" : "ascending";
}

export function arrowOf(direction: Direction): string {
  return direction === "ascending" ? " ▴" : direction === "descending" ? " ▾" : "";
}
