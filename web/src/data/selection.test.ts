import { expect, test } from "vitest";
import { add, between, neighbour, toggle, toggleAll } from "./selection";

const ORDER = ["a", "b", "c", "d"];

test("a click marks a run, another takes the mark away", () => {
  expect(toggle(["a"], "b")).toEqual(["a", "b"]);
  expect(toggle(["a", "b"], "a")).toEqual(["b"]);
});

test("shift marks everything in between, in either direction", () => {
  expect(between(ORDER, "b", "d")).toEqual(["b", "c", "d"]);
  expect(between(ORDER, "d", "b")).toEqual(["b", "c", "d"]);
  expect(between(ORDER, null, "c")).toEqual(["c"]);
  expect(between(ORDER, "filtered out", "c")).toEqual(["c"]);
  expect(add(["d"], between(ORDER, "c", "d"))).toEqual(["d", "c"]);
});

test("all, then none; runs that are not listed keep their marks", () => {
  expect(toggleAll(["z", "a"], ORDER)).toEqual(["z", "a", "b", "c", "d"]);
  expect(toggleAll(["z", ...ORDER], ORDER)).toEqual(["z"]);
});

test("arrows stop at the ends, and begin at them", () => {
  expect(neighbour(ORDER, "a", 1)).toBe("b");
  expect(neighbour(ORDER, "a", -1)).toBe("a");
  expect(neighbour(ORDER, "c", 10)).toBe("d");
  expect(neighbour(ORDER, null, 1)).toBe("a");
  expect(neighbour(ORDER, null, -1)).toBe("d");
  expect(neighbour(ORDER, null, 1e9)).toBe("d");
  expect(neighbour(ORDER, "filtered out", -1e9)).toBe("a");
  expect(neighbour([], null, 1)).toBeNull();
});
