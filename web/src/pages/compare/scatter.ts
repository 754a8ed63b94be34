// A metric of runs against a setting, as `linnet plot --against` groups it: runs that differ only in their seed are one point.
import type { RunMetrics } from "../../data/types";
import { resultOf, type Taken } from "./comparison";

export interface ScatterGroup {
  x: unknown;
  runs: string[];
  values: number[];
  mean: number;
  /** The sample's standard deviation; null of a single run. */
  spread: number | null;
}
export interface Scatter {
  groups: ScatterGroup[];
  /** Runs whose metric is not finite. */
  diverged: { x: unknown; run: string }[];
  /** Runs that lack the setting or the metric. */
  without: number;
}

export function buildScatter(runs: readonly RunMetrics[], setting: string, metric: string, taken: Taken): Scatter {
  const groups = new Map<string, { x: unknown; runs: string[]; values: number[] }>();
  const diverged: Scatter["diverged"] = [];
  let without = 0;
  for (const run of runs) {
    const x = run.settings[setting];
    const value = resultOf(run, metric, taken);
    if (x === undefined || x === null || value === null) without++;
    else if (!Number.isFinite(value)) diverged.push({ x, run: run.id });
    else {
      const kin = kinOf(run, setting);
      const group = groups.get(kin) ?? { x, runs: [], values: [] };
      group.runs.push(run.id);
      group.values.push(value);
      groups.set(kin, group);
    }
  }
  return {
    groups: [...groups.values()].map((group) => ({ ...group, ...meanAndSpread(group.values) })),
    diverged,
    without,
  };
}

/** Equal of runs that differ in nothing but their seed. */
function kinOf(run: RunMetrics, setting: string): string {
  const own = Object.entries(run.settings).filter(
    ([name]) => name === setting || (name !== "git" && !/seed$/.test(name)),
  );
  return JSON.stringify(own.sort(([a], [b]) => a.localeCompare(b)));
}

function meanAndSpread(values: readonly number[]): { mean: number; spread: number | null } {
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  if (values.length < 2) return { mean, spread: null };
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, spread: Math.sqrt(squares / (values.length - 1)) };
}
