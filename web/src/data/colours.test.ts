import { expect, test } from "vitest";
import { assignColours } from "./colours";

const own = (run: string) => Number(run.slice(1));

test("a run has its own colour, and the next that is free where that is taken", () => {
  const colours = assignColours(["a3", "b3", "c4", "d1"], own, new Map());
  expect([...colours]).toEqual([
    ["a3", 3],
    ["b3", 4],
    ["c4", 5],
    ["d1", 1],
  ]);
});

test("a run that is still shown keeps its colour, whoever comes or goes", () => {
  const before = assignColours(["a3", "b3"], own, new Map());
  expect(assignColours(["b3"], own, before).get("b3")).toBe(4);
  expect(assignColours(["c3", "b3", "a3"], own, before).get("b3")).toBe(4);
  expect(assignColours(["c3", "b3", "a3"], own, before).get("c3")).toBe(5);
});

test("beyond twelve runs colours repeat, each as often as the others", () => {
  const runs = Array.from({ length: 24 }, (_, at) => `r${at % 3}`).map((run, at) => `${run}${at}`);
  const uses = new Map<number, number>();
  for (const colour of assignColours(runs, () => 0, new Map()).values()) uses.set(colour, (uses.get(colour) ?? 0) + 1);
  expect([...uses.values()]).toEqual(Array(12).fill(2));
});
