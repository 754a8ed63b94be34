import { expect, it } from "vitest";
import type { Figure, Goal, RunMetrics } from "../../data/types";
import { axisSettings, bestRuns, compareRuns, mainMetric, resultOf, type Taken } from "./comparison";

const metric = (
  key: string,
  last: Figure,
  best: Figure,
  goal: Goal = null,
  held_out_of: string | null = null,
  constant = false,
) => ({
  key,
  goal,
  rows: 10,
  last,
  last_step: 100,
  best,
  best_step: best === null ? null : 90,
  low: null,
  high: null,
  constant,
  held_out_of,
});
const run = (id: string, settings: Record<string, unknown>, loss: Figure): RunMetrics => ({
  id,
  settings,
  axes: ["step"],
  metrics: [
    metric("lr", 0.1, null),
    metric("loss", loss, loss, "min"),
    metric("validation/loss", loss, loss, "min", "loss"),
    metric("tokens", 4096, null, null, null, true),
    metric("sys/cpu/percent", 50, null),
  ],
});

const comparison = compareRuns([
  run("a", { lr: 1e-3, seed: 1, corpus: "x" }, 2),
  run("b", { lr: 1e-2, seed: 1, corpus: "x" }, "nan"),
]);

it("tells settings that differ from those that do not", () => {
  expect(comparison.differing).toEqual(["lr"]);
  expect(comparison.equal).toEqual(["corpus", "seed"]);
});

it("compares metrics with a goal first, without constants and the machine", () => {
  expect(comparison.metrics.map(({ key }) => key)).toEqual(["loss", "validation/loss", "lr"]);
  expect(comparison.metrics[0]?.heldOut).toEqual(["validation/loss"]);
  expect(mainMetric(comparison.metrics)?.key).toBe("validation/loss");
});

it("takes the best value where there is one, else the last; NaN stays NaN", () => {
  const results = (key: string, taken: Taken) => comparison.runs.map((run) => resultOf(run, key, taken));
  expect(results("lr", "best")[0]).toBe(0.1);
  expect(results("loss", "last")[1]).toBeNaN();
  expect(results("nothing", "last")[0]).toBeNull();
});

it("marks the best by goal, never NaN", () => {
  expect([...bestRuns([3, 1, Number.NaN, 1], "min")]).toEqual([1, 3]);
  expect([...bestRuns([3, 1, null], "max")]).toEqual([0]);
  expect([...bestRuns([3, 1], null)]).toEqual([]);
  expect([...bestRuns([1, 1, 1], "max")]).toEqual([]);
});

it("leaves texts that are all different off the axes", () => {
  const runs = Array.from({ length: 30 }, (_, index) =>
    run(String(index), { path: `/runs/${index}`, optimizer: index % 2 ? "muon" : "adamw", lr: index }, 1),
  );
  expect(axisSettings(compareRuns(runs))).toEqual(["lr", "optimizer"]);
});
