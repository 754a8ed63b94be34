import { expect, it } from "vitest";
import type { Figure, RunMetrics } from "../../data/types";
import { latestColumns, machineFigures, rankRows } from "./figures";

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

it("tells the latest in few columns", () => {
  const texts = latestColumns(machineFigures([figures])).map(({ title, text }) => `${title} ${text(figures.metrics)}`);
  expect(texts).toContain("GPU 0 90 %");
  expect(texts).toContain("memory 2.0 GB of 8.0 GB");
});

it("has a row for each rank and says who is slow", () => {
  const ranks = run({
    "sys/rank1/tokens_per_s": [1, 900],
    "sys/rank1/slowdown": [1, 1.5],
    "sys/rank1/busy_percent": [1, 97],
    "sys/rank0/tokens_per_s": [1, 1350],
    "sys/rank0/rss": [1, 2e9],
    "sys/rank0/gpu_percent": [1, 88],
    "sys/rank0/gpu_memory_used": [1, 6e10],
    "sys/rank0/slowdown": [0.5, 0.7],
  });
  expect(rankRows(ranks.metrics)).toEqual([
    { rank: 0, speed: "1,350 tokens/s", busy: "–", memory: "2.0 GB", gpu: "88 %, 60.0 GB", slow: "" },
    { rank: 1, speed: "900 tokens/s", busy: "97 %", memory: "–", gpu: "–", slow: "slow, 1.5 ×" },
  ]);
  expect(machineFigures([ranks]).map(({ title }) => title)).toEqual([
    "rank 0: its own speed, tokens/s",
    "rank 1: busy, %",
    "rank 1: its own speed, tokens/s",
  ]);
  expect(rankRows(figures.metrics)).toEqual([]);
});
