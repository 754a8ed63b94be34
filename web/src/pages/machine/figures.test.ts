import { expect, it } from "vitest";
import type { Figure, RunMetrics } from "../../data/types";
import { latestColumns, machineFigures, machineText } from "./figures";

const run = (figures: Record<string, [low: Figure, last: Figure]>): RunMetrics => ({
  id: "a",
  axes: ["step"],
  settings: {},
  metrics: Object.entries(figures).map(([key, [low, last]]) => ({
    key,
    goal: null,
    rows: 9,
    last,
    last_step: 1,
    best: null,
    best_step: null,
    low,
    high: last,
    constant: false,
    held_out_of: null,
  })),
});
const figures = run({
  loss: [1, 2],
  "sys/memory/used": [1e9, 2e9],
  "sys/memory/total": [8e9, 8e9],
  "sys/cpu/percent": [3, 50],
  "sys/gpu0/percent": [0, 90],
  "sys/gpu0/power": [100, 300],
  "sys/process/rss": [1e8, 2e8],
});

it("has GPUs first, then the run, and no constants", () => {
  expect(machineFigures([figures]).map(({ title }) => title)).toEqual([
    "GPU 0: use, %",
    "GPU 0: power, W",
    "memory of the run",
    "CPU, %",
    "memory used",
  ]);
});

it("writes figures in their units", () => {
  expect(machineText("sys/memory/used", 2e9)).toBe("2.0 GB");
  expect(machineText("sys/net/recv_bps", 1500)).toBe("1.5 kB/s");
  expect(machineText("sys/cpu/percent", 51.234)).toBe("51.2 %");
  expect(machineText("sys/gpu0/temperature", 61)).toBe("61 °C");
  expect(machineText("sys/gpu0/power", null)).toBe("–");
});

it("tells the latest in few columns", () => {
  const texts = latestColumns(machineFigures([figures])).map(({ title, text }) => `${title} ${text(figures.metrics)}`);
  expect(texts).toContain("GPU 0 90 %");
  expect(texts).toContain("memory 2.0 GB of 8.0 GB");
});
