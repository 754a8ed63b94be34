/** Mean and spread across the runs of a group: seeds of one setting as a line with a band. */
import { type Grid, madeTrace, type Trace } from "./trace";

export type Spread = "std" | "range";

/** Runs that are drawn as one line. */
export interface RunGroup {
  /** What they have in common, as one reads it: "lr 0.003". */
  readonly label: string;
  readonly runs: readonly string[];
}

/** The setting that means: equal in every other one. */
export const ALL_BUT_SEED = "all but seed";

/**
 * Groups runs by the value of a setting, in the order of their first runs. `label` words a value; runs without the
 * setting are a group of their own. No groups where none of them has it: the address may name anything.
 */
export function groupRuns(
  runs: readonly string[],
  settings: ReadonlyMap<string, Readonly<Record<string, unknown>>>,
  key: string,
): RunGroup[] {
  const isKnown = (of: Readonly<Record<string, unknown>> | undefined) =>
    of !== undefined && (key === ALL_BUT_SEED || of[key] !== undefined);
  if (!runs.some((run) => isKnown(settings.get(run)))) return [];
  const differing = key === ALL_BUT_SEED ? differingSettings(runs, settings).filter((name) => !isSeed(name)) : [key];
  const groups = new Map<string, string[]>();
  for (const run of runs) {
    const values = differing.map((name) => settings.get(run)?.[name]);
    const label = differing.map((name, at) => `${shortName(name)} ${worded(values[at])}`).join(", ") || "all runs";
    const members = groups.get(label);
    if (members) members.push(run);
    else groups.set(label, [run]);
  }
  return [...groups].map(([label, members]) => ({ label, runs: members }));
}

/** The settings in which these runs are not all equal, and that do not only name the run. */
export function differingSettings(
  runs: readonly string[],
  settings: ReadonlyMap<string, Readonly<Record<string, unknown>>>,
): string[] {
  const known = runs.map((run) => settings.get(run)).filter((of) => of !== undefined);
  const names = new Set(known.flatMap((of) => Object.keys(of)));
  return [...names]
    .filter((name) => {
      const values = new Set(known.map((of) => worded(of[name])));
      return values.size > 1;
    })
    .sort();
}

function isSeed(name: string): boolean {
  return /(^|[._/])seed$/.test(name);
}

function shortName(name: string): string {
  return name.slice(name.lastIndexOf(".") + 1);
}

function worded(value: unknown): string {
  if (value === undefined || value === null) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/**
 * One line for several traces of one metric: the mean of their lines in each column, and as low and high either one
 * standard deviation (of the sample) around it or the least and the greatest.
 *
 * Between two of its rows a trace counts as the line that joins them; where it has not begun, or has ended, it does not
 * count.
 */
export function meanTrace(traces: readonly Trace[], group: RunGroup, grid: Grid, spread: Spread): Trace {
  const members = traces.filter((trace) => trace.length > 0);
  const x = commonX(members, grid);
  const mean = new Float64Array(x.length);
  const low = new Float64Array(x.length);
  const high = new Float64Array(x.length);
  const rows = new Int32Array(members.length);
  for (let at = 0; at < x.length; at++) {
    const rowX = x[at] ?? 0;
    let amount = 0;
    let sum = 0;
    let squares = 0;
    let least = Number.POSITIVE_INFINITY;
    let most = Number.NEGATIVE_INFINITY;
    for (let index = 0; index < members.length; index++) {
      const trace = members[index];
      const value = trace ? valueOnLine(trace, rowX, rows, index) : Number.NaN;
      if (Number.isNaN(value)) continue;
      amount++;
      const before = value - sum / Math.max(1, amount - 1);
      squares += amount > 1 ? (before * before * (amount - 1)) / amount : 0;
      sum += value;
      least = Math.min(least, value);
      most = Math.max(most, value);
    }
    const middle = amount ? sum / amount : Number.NaN;
    const deviation = amount > 1 ? Math.sqrt(squares / (amount - 1)) : 0;
    mean[at] = middle;
    low[at] = !amount ? Number.NaN : spread === "std" ? middle - deviation : least;
    high[at] = !amount ? Number.NaN : spread === "std" ? middle + deviation : most;
  }
  const [first] = members;
  return madeTrace({ run: group.label, key: first?.key ?? "", goal: first?.goal ?? null }, grid, {
    x,
    low,
    high,
    mean,
  });
}

/** The rows of all where they are the same, as with seeds that log every step; else the columns of the grid. */
function commonX(traces: readonly Trace[], grid: Grid): Float64Array {
  const longest = traces.reduce<Trace | null>(
    (most, trace) => (trace.length > (most?.length ?? 0) ? trace : most),
    null,
  );
  if (!longest) return new Float64Array(0);
  const same = traces.every((trace) => {
    for (let at = 0; at < trace.length; at++) if (trace.x[at] !== longest.x[at]) return false;
    return true;
  });
  if (same) return Float64Array.from(longest.x.subarray(0, longest.length));
  const first = Math.min(...traces.map((trace) => trace.x[0] ?? Number.POSITIVE_INFINITY));
  const last = Math.max(...traces.map((trace) => trace.x[trace.length - 1] ?? Number.NEGATIVE_INFINITY));
  const points = Math.max(2, Math.min(grid.points, 2000));
  return Float64Array.from({ length: points }, (_, at) => first + ((last - first) * at) / (points - 1));
}

/** `rows`: where the last look at each trace ended; places come in order, so that no search is needed. */
function valueOnLine(trace: Trace, x: number, rows: Int32Array, index: number): number {
  const { line, length } = trace;
  let at = rows[index] ?? 0;
  while (at < length && (trace.x[at] ?? 0) < x) at++;
  rows[index] = at;
  if (at >= length) return Number.NaN;
  const right = trace.x[at] ?? 0;
  if (right === x) return line[at] ?? Number.NaN;
  if (at === 0) return Number.NaN;
  const left = trace.x[at - 1] ?? 0;
  const from = line[at - 1] ?? Number.NaN;
  return from + (((line[at] ?? Number.NaN) - from) * (x - left)) / (right - left);
}
