import { describe, expect, test } from "vitest";
import { ALL_BUT_SEED, differingSettings, groupRuns, meanTrace } from "./spread";
import { madeTrace } from "./trace";

const GRID = { from: 0, to: 10, points: 10 };
const made = (run: string, x: number[], y: number[]) => {
  const values = Float64Array.from(y);
  return madeTrace({ run, key: "loss", goal: "min" }, GRID, {
    x: Float64Array.from(x),
    low: values,
    high: values,
    mean: values,
  });
};
const group = { label: "lr 0.1", runs: ["a", "b", "c"] };
const settings = new Map<string, Record<string, unknown>>([
  ["a", { lr: 0.1, seed: 1, "model.d_model": 64 }],
  ["b", { lr: 0.1, seed: 2, "model.d_model": 64 }],
  ["c", { lr: 0.3, seed: 1, "model.d_model": 64 }],
]);

describe("mean and spread", () => {
  test("over the rows that all have", () => {
    const mean = meanTrace(
      [made("a", [1, 2], [1, 2]), made("b", [1, 2], [2, 2]), made("c", [1, 2], [3, 5])],
      group,
      GRID,
      "std",
    );
    expect([...mean.x]).toEqual([1, 2]);
    expect([...mean.mean]).toEqual([2, 3]);
    expect(mean.low[0]).toBeCloseTo(1);
    expect(mean.high[0]).toBeCloseTo(3);
    expect(mean.high[1]).toBeCloseTo(3 + Math.sqrt(3));
  });
  test("least and greatest", () => {
    const mean = meanTrace([made("a", [1, 2], [1, 2]), made("b", [1, 2], [3, 8])], group, GRID, "range");
    expect([...mean.low]).toEqual([1, 2]);
    expect([...mean.high]).toEqual([3, 8]);
  });
  test("rows at other places are joined by lines, and a run that ended does not count", () => {
    const mean = meanTrace(
      [made("a", [0, 10], [0, 10]), made("b", [0, 5], [0, 10])],
      group,
      { ...GRID, points: 11 },
      "std",
    );
    expect(mean.mean[4]).toBeCloseTo((4 + 8) / 2);
    expect(mean.mean[8]).toBeCloseTo(8);
    expect(mean.low[8]).toBeCloseTo(8);
  });
});

describe("groups", () => {
  test("by a setting", () => {
    expect(groupRuns(["a", "b", "c"], settings, "lr")).toEqual([
      { label: "lr 0.1", runs: ["a", "b"] },
      { label: "lr 0.3", runs: ["c"] },
    ]);
  });
  test("by what none has: not at all", () => {
    expect(groupRuns(["a", "b", "c"], settings, "nonsense")).toEqual([]);
    expect(groupRuns(["a", "b"], new Map([["a", { lr: 1 }]]), "lr").map(({ label }) => label)).toEqual([
      "lr 1",
      "lr –",
    ]);
  });
  test("by all but the seed", () => {
    expect(groupRuns(["a", "b", "c"], settings, ALL_BUT_SEED).map((of) => of.runs)).toEqual([["a", "b"], ["c"]]);
    expect(differingSettings(["a", "b"], settings)).toEqual(["seed"]);
    expect(groupRuns(["a", "b"], settings, ALL_BUT_SEED)).toEqual([{ label: "all runs", runs: ["a", "b"] }]);
  });
});
