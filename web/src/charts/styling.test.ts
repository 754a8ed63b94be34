// @vitest-environment happy-dom
import { beforeAll, expect, test } from "vitest";
import { paintOf, start } from "../data/state";
import { FakeSource } from "./fake-source";
import { type ChartSubject, styledTraces } from "./styling";
import { madeTrace, type Trace } from "./trace";
import { ownView } from "./view";

const RATES = { a: 1, b: 2, c: 1, d: 2 };
const runs = Object.keys(RATES);
const grid = { from: 0, to: 2, points: 2 };
const subject: ChartSubject = {
  runs,
  keys: ["loss"],
  heldOut: new Set(),
  settings: new Map(Object.entries(RATES).map(([run, lr]) => [run, { lr }])),
};

function made(run: string): Trace {
  const values = Float64Array.from([3, 2]);
  return madeTrace({ run, key: "loss" }, grid, {
    x: Float64Array.from([0, 1]),
    low: values,
    high: values,
    mean: values,
  });
}

function lines(of: ChartSubject, mean: string) {
  const view = ownView();
  view.groupBy.value = mean;
  const demand = { ...of, beside: [], axis: "step", alpha: 1, superseded: false, points: 2, range: null } as const;
  return styledTraces({ demand, grid, traces: of.runs.map(made) }, of, view);
}

beforeAll(() => {
  for (let at = 1; at <= 12; at++) document.documentElement.style.setProperty(`--c${at}`, `#0000${10 + at}`);
  start(new FakeSource(runs.map((id) => ({ id, series: {} }))).source);
});

test("the mean of a group has the colour of its first run, also where another group is gone", () => {
  expect(new Set(runs.map(paintOf)).size).toBe(4);
  expect(lines(subject, "lr").map(({ label, colour }) => [label, colour])).toEqual([
    ["lr 1 (2)", paintOf("a")],
    ["lr 2 (2)", paintOf("b")],
  ]);
  const [second] = lines({ ...subject, runs: ["b", "d"] }, "lr");
  expect(second?.colour).toBe(paintOf("b"));
});

test("a setting that no run has groups none", () => {
  expect(lines(subject, "nonsense")).toHaveLength(runs.length);
});
