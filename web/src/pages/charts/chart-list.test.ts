import { describe, expect, test } from "vitest";
import type { MetricInfo, RunMetrics } from "../../data/types";
import { chartSections, mainMetric, matches } from "./chart-list";
import type { ChartPreferences } from "./preferences";

const metric = (key: string, changes: Partial<MetricInfo> = {}): MetricInfo => ({
  key,
  goal: null,
  rows: 100,
  last: 1,
  last_step: 100,
  best: null,
  best_step: null,
  low: 0,
  high: 2,
  constant: false,
  held_out_of: null,
  ...changes,
});
const run = (id: string, ...metrics: MetricInfo[]): RunMetrics => ({ id, metrics, axes: ["step"], settings: {} });
const NOTHING: ChartPreferences = { pinned: [], hidden: [], order: [], sizes: new Map(), constants: false, folded: [] };
const ALL = { words: "", showHidden: false };
const RUNS = [
  run(
    "a",
    metric("grad_norm"),
    metric("lr"),
    metric("loss", { goal: "min" }),
    metric("validation/loss", { goal: "min", held_out_of: "loss" }),
    metric("validation/ppl", { goal: "min" }),
    metric("tokens", { constant: true, last: 4096 }),
    metric("sys/cpu/user"),
    metric("sys/memory/used"),
    metric("optim/update"),
    metric("optim/weight"),
    metric("alone/one"),
  ),
];
const shape = (preferences: ChartPreferences = NOTHING, filter = ALL) =>
  Object.fromEntries(
    chartSections(RUNS, preferences, filter).map(({ name, charts }) => [name, charts.map(({ key }) => key)]),
  );

describe("sections", () => {
  test("results first, then what has no prefix, then by prefix, the machine last", () => {
    expect(shape()).toEqual({
      results: ["loss", "validation/ppl"],
      training: ["grad_norm", "lr", "alone/one"],
      optim: ["optim/update", "optim/weight"],
      sys: ["sys/cpu/user", "sys/memory/used"],
    });
    expect(Object.keys(shape())).toEqual(["results", "training", "optim", "sys"]);
  });

  test("the held-out loss is drawn on the chart of the training loss", () => {
    const [results] = chartSections(RUNS, NOTHING, ALL);
    expect(results?.charts[0]).toMatchObject({ keys: ["loss", "validation/loss"], heldOut: ["validation/loss"] });
  });

  test("pinned ones stand before all others, in their own order", () => {
    expect(shape({ ...NOTHING, pinned: ["lr", "validation/loss"] }).pinned).toEqual(["lr", "validation/loss"]);
    expect(shape({ ...NOTHING, pinned: ["lr"] }).training).toEqual(["grad_norm", "alone/one"]);
  });

  test("moved ones keep their place", () => {
    expect(shape({ ...NOTHING, order: ["lr", "alone/one", "grad_norm"] }).training).toEqual([
      "lr",
      "alone/one",
      "grad_norm",
    ]);
  });
});

describe("what has no chart", () => {
  const training = (preferences = NOTHING, filter = ALL) =>
    chartSections(RUNS, preferences, filter).find(({ name }) => name === "training");

  test("constants, with their value, unless they are asked for", () => {
    expect(training()?.constants).toMatchObject([{ key: "tokens", constant: "4,096" }]);
    expect(training({ ...NOTHING, constants: true })?.charts.map(({ key }) => key)).toContain("tokens");
  });

  test("hidden ones, unless all are asked for", () => {
    const hiding = { ...NOTHING, hidden: ["lr"] };
    expect(training(hiding)?.charts.map(({ key }) => key)).not.toContain("lr");
    expect(training(hiding)?.hidden.map(({ key }) => key)).toEqual(["lr"]);
    expect(training(hiding, { words: "", showHidden: true })?.charts.map(({ key }) => key)).toContain("lr");
  });

  test("a metric that is constant in each run but differs between them is news", () => {
    const runs = [
      run("a", metric("width", { constant: true, last: 1 })),
      run("b", metric("width", { constant: true, last: 2 })),
    ];
    expect(chartSections(runs, NOTHING, ALL)[0]?.charts.map(({ key }) => key)).toEqual(["width"]);
  });

  test("names without the words of a filter", () => {
    expect(shape(NOTHING, { words: "validation", showHidden: false })).toEqual({ results: ["loss", "validation/ppl"] });
    expect(matches("blk.0.attn", "blk.0*")).toBe(true);
    expect(matches("blk.10", "blk.?")).toBe(false);
    expect(matches("grad_norm", "norm grad")).toBe(true);
  });
});

test("the main metric is the loss, else one that is called so, else the first", () => {
  expect(mainMetric(["lr", "train_loss"])).toBe("train_loss");
  expect(mainMetric(["sys/cpu", "aux_loss"])).toBe("aux_loss");
  expect(mainMetric(["sys/cpu", "reward"])).toBe("reward");
  expect(mainMetric([])).toBeNull();
});
