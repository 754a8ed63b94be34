import { expect, test } from "vitest";
import { familyTree } from "./family";
import type { RunRow } from "./types";

const row = (id: string, parent: string | null = null) => ({ id, parent }) as RunRow;
const drawn = (rows: RunRow[]) =>
  familyTree(rows).map(({ row, lines, gone }) => lines + row.id + (gone ? ` (${gone})` : ""));

test("each run stands below the one it was forked from", () => {
  const rows = [row("b", "a"), row("a"), row("d", "b"), row("c", "a"), row("e")];
  expect(drawn(rows)).toEqual(["a", "├─ b", "│  └─ d", "└─ c", "e"]);
});

test("a parent that is gone is named, a circle is no family, and no run is lost", () => {
  expect(drawn([row("x", "deleted")])).toEqual(["x (deleted)"]);
  expect(drawn([row("p", "q"), row("q", "p"), row("s", "s")]).map((line) => line.at(-1))).toEqual(["p", "q", "s"]);
});
