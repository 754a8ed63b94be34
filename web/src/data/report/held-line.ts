/** `HeldLine`: one series of a report on an axis, and any stretch of it on any grid, as the server would answer. */
import type { Series } from "../series";
import type { Axis } from "../types";
import type { AxisFacts, HeldSeries, ReportData } from "./contents";
import { averageAfter, isSmoothed, smoothColumns, smoothRows } from "./smoothing";

type Floats = Float64Array | Float32Array;

interface Rows {
  first: number;
  x: Floats;
  value: Floats;
  step: Floats;
}
/** What stands for the rows of a stretch: at `x` their least, greatest and mean, and how many they are. */
interface Points {
  x: Floats;
  low: Floats;
  high: Floats;
  mean: Floats;
  count: ArrayLike<number>;
}

export interface Grid {
  from: number;
  to: number;
  points: number;
}

export class HeldLine {
  readonly facts: AxisFacts;
  readonly #run: string;
  readonly #series: HeldSeries;
  readonly #axis: Axis;
  readonly #rows: Rows;
  readonly #columns: Points | null;
  readonly #smoothed = new Map<string, Float64Array>();

  private constructor(
    run: string,
    series: HeldSeries,
    axis: Axis,
    facts: AxisFacts,
    rows: Rows,
    columns: Points | null,
  ) {
    this.#run = run;
    this.#series = series;
    this.#axis = axis;
    this.facts = facts;
    this.#rows = rows;
    this.#columns = columns;
  }

  /** Null where the series has no place on the axis. `created`: when the run was made, for the wall time. */
  static on(axis: Axis, data: ReportData, run: string, series: HeldSeries, created: number): HeldLine | null {
    const held: Axis = axis === "wall time" ? "relative time" : axis;
    const shift = axis === "wall time" ? created : 0;
    const facts = series.axes[held];
    const { rows, grid } = series;
    if (!facts || !rows) return null;
    const placesOn = (x: Partial<Record<Axis, number>>) => {
      const column = x[held];
      return column === undefined ? null : shifted(data.numbers(column), shift);
    };
    const step = data.numbers(rows.step);
    const x = held === "step" ? step : placesOn(rows.x);
    if (!x) return null;
    let columns: Points | null = null;
    if (grid) {
      const middles = held === "step" ? middlesOf(grid) : placesOn(grid.x);
      if (!middles) return null;
      columns = sortedPoints({
        x: middles,
        low: data.numbers(grid.low),
        high: data.numbers(grid.high),
        mean: data.numbers(grid.mean),
        count: data.numbers(grid.count),
      });
    }
    const inOrder = sortedRows({ first: rows.first, x, value: data.numbers(rows.value), step });
    return new HeldLine(run, series, axis, shiftedFacts(facts, shift), inOrder, columns);
  }

  /** The series within a grid; `alpha`: of the smoothing, 1 for none. */
  within(grid: Grid, alpha: number): Series {
    const rows = this.#rows;
    const smooth = isSmoothed(this.#series.total, alpha) && !this.#series.superseded ? alpha : 1;
    const isHeld = !this.#columns || (rows.x.length > 0 && grid.from >= (rows.x[0] ?? Number.NaN));
    if (!isHeld && this.#columns) return this.#bucketed(this.#columns, this.#smoothColumns(smooth), grid);
    const begin = lowerBound(rows.x, grid.from);
    const end = upperBound(rows.x, grid.to);
    const smoothed = this.#smoothRows(smooth);
    if (end - begin <= grid.points) return this.#exact(grid, begin, end, smoothed);
    const points = { x: rows.x, low: rows.value, high: rows.value, mean: rows.value, count: ones(rows.x.length) };
    return this.#bucketed(points, smoothed, grid);
  }

  /**
   * How many rows a point of the report stands for, where a grid could show more of them than the report holds; 0
   * where it holds all that the grid could show.
   */
  coarseness(grid: Grid): number {
    const columns = this.#columns;
    if (!columns || grid.from >= (this.#rows.x[0] ?? Number.NaN)) return 0;
    const begin = lowerBound(columns.x, grid.from);
    const end = upperBound(columns.x, grid.to);
    let rows = 0;
    for (let at = begin; at < end; at++) rows += columns.count[at] ?? 0;
    const filled = end - begin;
    if (filled >= grid.points * 0.9 || (filled > 2 && rows <= filled)) return 0;
    return this.#series.total / Math.max(1, columns.x.length);
  }

  #smoothRows(alpha: number): Float64Array | null {
    if (alpha >= 1) return null;
    const columns = this.#columns;
    return this.#once(`rows ${alpha}`, () => {
      const start = columns ? averageAfter(columns.mean, columns.count, this.#rows.first, alpha) : undefined;
      return smoothRows(this.#rows.value, alpha, start);
    });
  }

  #smoothColumns(alpha: number): Float64Array | null {
    const columns = this.#columns;
    if (alpha >= 1 || !columns) return null;
    return this.#once(`columns ${alpha}`, () => smoothColumns(columns.mean, columns.count, alpha));
  }

  #once(name: string, make: () => Float64Array): Float64Array {
    const known = this.#smoothed.get(name);
    if (known) return known;
    if (this.#smoothed.size > 8) this.#smoothed.clear(); // somebody drags the slider
    const made = make();
    this.#smoothed.set(name, made);
    return made;
  }

  #entry(grid: Grid, exact: boolean, rows: number, total: number): Omit<Series, "columns"> {
    const { key, goal, superseded, inherited, total: position } = this.#series;
    const { last, best, resumes } = this.facts;
    const marks = this.facts.marks.filter(({ x }) => x >= grid.from && x <= grid.to);
    return {
      run: this.#run,
      key,
      goal,
      superseded,
      inherited,
      exact,
      rows,
      total,
      position,
      ema: null,
      last,
      best,
      resumes,
      marks,
    };
  }

  /** All rows of a stretch, and one before and after it, so that a line does not end inside the chart. */
  #exact(grid: Grid, begin: number, end: number, smoothed: Float64Array | null): Series {
    const { x, value, step } = this.#rows;
    const [from, to] = [Math.max(0, begin - 1), Math.min(x.length, end + 1)];
    const columns: Series["columns"] = { x: x.slice(from, to), value: value.slice(from, to) };
    if (smoothed) columns.smooth = smoothed.slice(from, to);
    if (this.#axis !== "step") columns.step = step.slice(from, to);
    return { ...this.#entry(grid, true, to - from, end - begin), columns };
  }

  #bucketed(points: Points, smoothed: Float64Array | null, grid: Grid): Series {
    const begin = lowerBound(points.x, grid.from);
    const end = upperBound(points.x, grid.to);
    const buckets = new Buckets(grid, smoothed !== null);
    let total = 0;
    for (let at = begin; at < end; at++) {
      total += points.count[at] ?? 0;
      buckets.add(points, at, smoothed);
    }
    // Where points are far apart, the line goes on to the edges of the grid.
    if (end - begin < grid.points) {
      if (begin > 0) buckets.bridge(points, begin - 1, grid.from, smoothed);
      if (end < points.x.length && end > 0) buckets.bridge(points, end - 1, grid.to, smoothed);
    }
    return { ...this.#entry(grid, false, grid.points, total), columns: buckets.columns() };
  }
}

/** A grid that is being filled. */
class Buckets {
  readonly #grid: Grid;
  readonly #low: Float32Array;
  readonly #high: Float32Array;
  readonly #mean: Float32Array;
  readonly #smooth: Float32Array | null;
  readonly #counts: Float64Array;

  constructor(grid: Grid, smooth: boolean) {
    const empty = () => new Float32Array(grid.points).fill(Number.NaN);
    this.#grid = grid;
    this.#low = empty();
    this.#high = empty();
    this.#mean = empty();
    this.#smooth = smooth ? empty() : null;
    this.#counts = new Float64Array(grid.points);
  }

  add(points: Points, at: number, smoothed: Float64Array | null): void {
    const mean = points.mean[at] ?? Number.NaN;
    const added = points.count[at] ?? 0;
    if (!Number.isFinite(mean) || !added) return;
    const bucket = this.#bucketOf(points.x[at] ?? Number.NaN);
    const low = points.low[at] ?? mean;
    const high = points.high[at] ?? mean;
    const before = this.#counts[bucket] ?? 0;
    this.#counts[bucket] = before + added;
    const share = added / (before + added);
    const mixed = (column: Float32Array, value: number) => {
      const now = column[bucket] ?? value;
      column[bucket] = before ? now + (value - now) * share : value;
    };
    mixed(this.#mean, mean);
    if (this.#smooth) mixed(this.#smooth, smoothed?.[at] ?? mean);
    this.#low[bucket] = before ? Math.min(this.#low[bucket] ?? low, low) : low;
    this.#high[bucket] = before ? Math.max(this.#high[bucket] ?? high, high) : high;
  }

  /** The line between two points where it crosses an edge of the grid. */
  bridge(points: Points, at: number, edge: number, smoothed: Float64Array | null): void {
    const bucket = this.#bucketOf(edge);
    const [x, after] = [points.x[at] ?? Number.NaN, points.x[at + 1] ?? Number.NaN];
    const share = after > x ? (edge - x) / (after - x) : 0;
    if (this.#counts[bucket] || !(share >= 0 && share <= 1)) return;
    const between = (column: Floats) => {
      const [left, right] = [column[at] ?? Number.NaN, column[at + 1] ?? Number.NaN];
      return left + (right - left) * share;
    };
    this.#mean[bucket] = between(points.mean);
    this.#low[bucket] = between(points.low);
    this.#high[bucket] = between(points.high);
    if (this.#smooth && smoothed) this.#smooth[bucket] = between(smoothed);
  }

  columns(): Series["columns"] {
    const columns: Series["columns"] = { low: this.#low, high: this.#high, mean: this.#mean };
    if (this.#smooth) columns.smooth = this.#smooth;
    return columns;
  }

  #bucketOf(x: number): number {
    const { from, to, points } = this.#grid;
    return Math.max(0, Math.min(points - 1, Math.floor(((x - from) / (to - from)) * points)));
  }
}

function middlesOf({ from, to, points }: Grid): Float64Array {
  const width = (to - from) / points;
  return Float64Array.from({ length: points }, (_, column) => from + (column + 0.5) * width);
}

function shifted(x: Floats, by: number): Floats {
  return by === 0 ? x : Float64Array.from(x, (value) => value + by);
}

function shiftedFacts(facts: AxisFacts, by: number): AxisFacts {
  if (by === 0) return facts;
  const { span, last, best, resumes, marks } = facts;
  return {
    span: [span[0] + by, span[1] + by],
    last: last && [last[0] + by, last[1]],
    best: best && [best[0] + by, best[1]],
    resumes: resumes.map((x) => x + by),
    marks: marks.map((mark) => ({ ...mark, x: mark.x + by })),
  };
}

/** In the order of x, without what has no place on the axis. */
function orderOf(x: Floats): number[] | null {
  let sorted = true;
  for (let at = 0; at < x.length && sorted; at++) {
    sorted = Number.isFinite(x[at]) && (at === 0 || (x[at] ?? 0) >= (x[at - 1] ?? 0));
  }
  if (sorted) return null;
  const known = [...x.keys()].filter((at) => Number.isFinite(x[at]));
  return known.sort((a, b) => (x[a] ?? 0) - (x[b] ?? 0) || a - b);
}

function picked(column: ArrayLike<number>, order: readonly number[]): Float64Array {
  return Float64Array.from(order, (at) => column[at] ?? Number.NaN);
}

function sortedRows(rows: Rows): Rows {
  const order = orderOf(rows.x);
  if (!order) return rows;
  const { first, x, value, step } = rows;
  return { first, x: picked(x, order), value: picked(value, order), step: picked(step, order) };
}

function sortedPoints(points: Points): Points {
  const order = orderOf(points.x);
  if (!order) return points;
  const { x, low, high, mean, count } = points;
  return {
    x: picked(x, order),
    low: picked(low, order),
    high: picked(high, order),
    mean: picked(mean, order),
    count: picked(count, order),
  };
}

function ones(length: number): Float64Array {
  return new Float64Array(length).fill(1);
}

/** The first value that is not below `x`. */
function lowerBound(sorted: Floats, x: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The first value that is above `x`. */
function upperBound(sorted: Floats, x: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] ?? 0) <= x) low = middle + 1;
    else high = middle;
  }
  return low;
}
