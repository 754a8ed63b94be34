import { expect, it } from "vitest";
import type { RunDetail } from "../../data/types";
import { planRows } from "./plan";

const metric = {
  goal: null,
  rows: 3,
  last: 1,
  last_step: 1,
  best: null,
  best_step: null,
  low: 1,
  constant: false,
  held_out_of: null,
};
const detail = (status: string): RunDetail =>
  ({
    row: { status, step: 1000 },
    manifest: {},
    plan: {
      steps: 1000,
      seconds: 100,
      step_seconds: 0.1,
      planned: 4_096_000,
      unit: "tokens",
      memory: 2e9,
      device: "cpu",
    },
    elapsed: 120,
    metrics: [{ ...metric, key: "sys/process/rss", high: 2.2e9 }],
  }) as unknown as RunDetail;

it("puts what happened beside the plan", () => {
  const rows = Object.fromEntries(planRows(detail("completed")).map((row) => [row.name, row]));
  expect(rows.steps).toMatchObject({ plan: "1,000", happened: "1,000", difference: "as planned" });
  expect(rows.time).toMatchObject({ plan: "1 m 40 s", happened: "2 m 00 s", difference: "20 % more" });
  expect(rows.memory).toMatchObject({ plan: "2.0 GB", happened: "2.2 GB", difference: "10 % more" });
  expect(rows.tokens).toMatchObject({ plan: "4.1M", happened: "–", difference: "" });
});

it("compares no time before the run is done", () => {
  const rows = planRows(detail("live"));
  expect(rows.find(({ name }) => name === "time")?.difference).toBe("");
  expect(rows.find(({ name }) => name === "a step")).toMatchObject({
    plan: "100 ms",
    happened: "120 ms",
    difference: "20 % more",
  });
});

it("counts the steps of a fork from where it began", () => {
  const fork = { ...detail("completed"), manifest: { parent_step: 900 } };
  expect(planRows(fork)[0]).toMatchObject({ name: "steps", plan: "1,000", happened: "100" });
});
