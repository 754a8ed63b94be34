// What runs have in common and what not: settings, metrics, results.
import type { Goal, MetricInfo, RunMetrics } from "../../data/types";
import { asNumber } from "../../words";
import { differingNames } from "../run/settings";

export type Taken = "best" | "last";

export interface Comparison {
  runs: readonly RunMetrics[];
  /** Settings in which the runs differ, and those in which they do not. */
  differing: string[];
  equal: string[];
  /** Metrics that at least two runs have, those with a goal and of the most runs first; no constants, no machine. */
  metrics: ComparedMetric[];
}

export interface ComparedMetric {
  key: string;
  goal: Goal;
  runs: number;
  /** The same quantity on held-out data, drawn on the same chart. */
  heldOut: string[];
  heldOutOf: string | null;
}

export function compareRuns(runs: readonly RunMetrics[]): Comparison {
  const settings = runs.map((run) => run.settings);
  const differing = differingNames(settings);
  const all = [...new Set(settings.flatMap((one) => Object.keys(one)))];
  const isDiffering = new Set(differing);
  return {
    runs,
    differing,
    equal: all.filter((name) => !isDiffering.has(name)).sort(),
    metrics: comparedMetrics(runs),
  };
}

function comparedMetrics(runs: readonly RunMetrics[]): ComparedMetric[] {
  const metrics = new Map<string, ComparedMetric & { constant: boolean }>();
  const least = Math.min(2, runs.length);
  for (const run of runs) {
    for (const info of run.metrics) {
      if (info.key.startsWith("sys/")) continue;
      const entry = metrics.get(info.key) ?? {
        key: info.key,
        goal: info.goal,
        runs: 0,
        heldOut: [],
        heldOutOf: null,
        constant: true,
      };
      entry.runs++;
      entry.constant &&= info.constant;
      entry.heldOutOf ??= info.held_out_of;
      metrics.set(info.key, entry);
    }
  }
  for (const entry of metrics.values()) if (entry.heldOutOf) metrics.get(entry.heldOutOf)?.heldOut.push(entry.key);
  return [...metrics.values()]
    .filter((entry) => entry.runs >= least && !entry.constant)
    .sort((a, b) => Number(b.goal !== null) - Number(a.goal !== null) || b.runs - a.runs)
    .map(({ constant: _, ...entry }) => entry);
}

/** The main result: the held-out loss where there is one, else the first metric with a goal. */
export function mainMetric(metrics: readonly ComparedMetric[]): ComparedMetric | undefined {
  const withGoal = metrics.filter((metric) => metric.goal !== null);
  return withGoal.find((metric) => metric.heldOutOf !== null && metric.goal === "min") ?? withGoal[0] ?? metrics[0];
}

/** A run's value of a metric; null where it has none. NaN and infinities stay what they are. */
export function resultOf(run: RunMetrics, key: string, taken: Taken): number | null {
  const info = run.metrics.find((metric) => metric.key === key);
  const figure = info && (taken === "best" && info.best !== null ? info.best : info.last);
  return figure === null || figure === undefined ? null : asNumber(figure);
}

/** Which runs have the best finite value, by the metric's goal; none where all are equal. */
export function bestRuns(values: readonly (number | null)[], goal: Goal): Set<number> {
  const finite = values.filter((value): value is number => value !== null && Number.isFinite(value));
  if (goal === null || finite.length < 2) return new Set();
  const [least, greatest] = [Math.min(...finite), Math.max(...finite)];
  if (least === greatest) return new Set();
  const best = goal === "min" ? least : greatest;
  return new Set(values.flatMap((value, index) => (value === best ? [index] : [])));
}

export function stepOf(run: RunMetrics, key: string, taken: Taken): number | null {
  const info: MetricInfo | undefined = run.metrics.find((metric) => metric.key === key);
  return (taken === "best" && info?.best !== null ? info?.best_step : info?.last_step) ?? null;
}

/** Settings that may stand on an axis: what differs first, without paths and other texts that are all different. */
export function axisSettings({ runs, differing }: Comparison): string[] {
  return differing.filter((name) => {
    const values = runs.map((run) => run.settings[name]).filter((value) => value !== undefined && value !== null);
    const isText = values.some((value) => typeof value !== "number");
    const distinct = new Set(values.map((value) => JSON.stringify(value))).size;
    return values.length > 1 && distinct > 1 && (!isText || distinct <= Math.max(8, runs.length / 2));
  });
}
