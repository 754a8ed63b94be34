// @vitest-environment happy-dom
import { expect, test } from "vitest";
import { listItems } from "./listing";
import type { RunRow } from "./types";

const row = (id: string, parent: string | null = null) => ({ id, parent }) as RunRow;
const group = (key: string, first: number, count: number) => ({ key, first, count, live: 0, best: null });
const keys = (items: ReturnType<typeof listItems>) => items.map((item) => item.key);

test("without groups the rows are the list", () => {
  expect(keys(listItems({ rows: [row("b"), row("a")], groups: [] }, false))).toEqual(["b", "a"]);
});

test("each group has its head before its rows", () => {
  const rows = [row("a"), row("b"), row("c")];
  const items = listItems({ rows, groups: [group("grid", 0, 2), group("", 2, 1)] }, false);
  expect(keys(items)).toEqual(["group grid", "a", "b", "group ", "c"]);
});

test("of a folded group only the head is listed", () => {
  const items = listItems({ rows: [row("a"), row("b")], groups: [group("x", 0, 1), group("y", 1, 1)] }, false, ["x"]);
  expect(keys(items)).toEqual(["group x", "group y", "b"]);
});

test("as a tree forks stand below their parents, with the lines of linnet runs --tree", () => {
  const items = listItems({ rows: [row("fork", "a"), row("a")], groups: [] }, true);
  expect(items.map((item) => (item.kind === "run" ? item.lines + item.row.id : ""))).toEqual(["a", "└─ fork"]);
});
