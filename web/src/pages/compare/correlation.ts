// How a setting goes together with a result: Spearman's rank correlation, and what may be said of it from so many runs.
import { isFiniteNumber } from "./scale";

/** One setting against one result. */
export interface Correlation {
  name: string;
  runs: number; // that have both
  values: number; // different values of the setting
  /** −1 … 1; of texts with more than two values 0 … 1, the share of the ranks' spread between groups (ε²). Null: too few runs. */
  strength: number | null;
  signed: boolean;
  /** The 95 % interval of a signed one. */
  interval: [number, number] | null;
  verdict: "too few runs" | "could be chance" | "likely";
}

export const FEWEST_RUNS = 5; // below, no figure is shown at all

/** Correlations of each setting with the result, the strongest first. Settings that never change are left out. */
export function correlations(
  settings: readonly string[],
  settingOf: (run: number, setting: string) => unknown,
  results: readonly (number | null)[],
): Correlation[] {
  const rows = settings.flatMap((name) => {
    const pairs = results.flatMap((result, run) => {
      const value = settingOf(run, name);
      const isKnown = result !== null && Number.isFinite(result) && value !== undefined && value !== null;
      return isKnown ? [{ value, result }] : [];
    });
    const distinct = new Set(pairs.map(({ value }) => JSON.stringify(value))).size;
    return distinct > 1 ? [correlation(name, pairs, distinct)] : [];
  });
  const weight = (row: Correlation) => (row.strength === null ? -1 : Math.abs(row.strength));
  return rows.sort((a, b) => weight(b) - weight(a) || b.runs - a.runs || a.name.localeCompare(b.name));
}

function correlation(name: string, pairs: { value: unknown; result: number }[], values: number): Correlation {
  const runs = pairs.length;
  const numeric = pairs.every(({ value }) => isFiniteNumber(value));
  const signed = numeric || values === 2;
  const row = { name, runs, values, signed };
  if (runs < FEWEST_RUNS) return { ...row, strength: null, interval: null, verdict: "too few runs" };
  const results = pairs.map(({ result }) => result);
  if (!signed) {
    const groups = pairs.map(({ value }) => JSON.stringify(value));
    const { strength, chance } = groupStrength(groups, results);
    return { ...row, strength, interval: null, verdict: chance < 0.05 ? "likely" : "could be chance" };
  }
  const codes = [...new Set(pairs.map(({ value }) => JSON.stringify(value)))].sort();
  const levels = pairs.map(({ value }) => (isFiniteNumber(value) ? value : codes.indexOf(JSON.stringify(value))));
  const strength = spearman(levels, results);
  if (strength === null) return { ...row, strength, interval: null, verdict: "could be chance" };
  const interval = rankInterval(strength, runs);
  return { ...row, strength, interval, verdict: interval[0] > 0 || interval[1] < 0 ? "likely" : "could be chance" };
}

/** Spearman's rho: Pearson's correlation of ranks, ties at their mean rank. Null where one side never changes. */
export function spearman(xs: readonly number[], ys: readonly number[]): number | null {
  const [a, b] = [ranks(xs), ranks(ys)];
  const middle = (a.length + 1) / 2;
  let [both, left, right] = [0, 0, 0];
  a.forEach((rank, index) => {
    const [dx, dy] = [rank - middle, (b[index] ?? 0) - middle];
    both += dx * dy;
    left += dx * dx;
    right += dy * dy;
  });
  return left > 0 && right > 0 ? Math.max(-1, Math.min(1, both / Math.sqrt(left * right))) : null;
}

/** Ranks from 1; equal values share their mean rank. */
export function ranks(values: readonly number[]): number[] {
  const sorted = values.map((value, index) => ({ value, index })).sort((a, b) => a.value - b.value);
  const result = new Array<number>(values.length).fill(0);
  for (let first = 0; first < sorted.length; ) {
    const equal = sorted.filter(({ value }) => value === sorted[first]?.value);
    for (const { index } of equal) result[index] = first + (equal.length + 1) / 2;
    first += equal.length || 1; // NaN equals nothing
  }
  return result;
}

/** The 95 % interval by Fisher's transformation, its variance after Bonett and Wright (2000). */
export function rankInterval(rho: number, runs: number): [number, number] {
  const bounded = Math.max(-0.9999, Math.min(0.9999, rho));
  const half = 1.96 * Math.sqrt((1 + bounded ** 2 / 2) / (runs - 3));
  return [Math.tanh(Math.atanh(bounded) - half), Math.tanh(Math.atanh(bounded) + half)];
}

/** Kruskal and Wallis: ε² of the ranks, and how likely so much is by chance. */
function groupStrength(groups: string[], results: number[]): { strength: number; chance: number } {
  const rankOf = ranks(results);
  const runs = results.length;
  const sums = new Map<string, { total: number; count: number }>();
  groups.forEach((group, index) => {
    const sum = sums.get(group) ?? { total: 0, count: 0 };
    sums.set(group, { total: sum.total + (rankOf[index] ?? 0), count: sum.count + 1 });
  });
  let between = 0;
  for (const { total, count } of sums.values()) between += count * (total / count - (runs + 1) / 2) ** 2;
  const whole = rankOf.reduce((total, rank) => total + (rank - (runs + 1) / 2) ** 2, 0);
  const strength = whole > 0 ? between / whole : 0;
  return { strength, chance: chiSquareTail(strength * (runs - 1), sums.size - 1) };
}

/** P(X > x) of the chi-square distribution, by Wilson and Hilferty's approximation. */
function chiSquareTail(x: number, freedom: number): number {
  if (x <= 0 || freedom <= 0) return 1;
  const spread = 2 / (9 * freedom);
  const z = (Math.cbrt(x / freedom) - (1 - spread)) / Math.sqrt(spread);
  const t = 1 / (1 + 0.2316419 * Math.abs(z));
  const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  const series = 0.31938153 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)));
  return z > 0 ? density * t * series : 1 - density * t * series;
}
