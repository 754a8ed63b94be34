/** `Trace`: one series as it is drawn, in typed arrays that grow while the run is live. */
import type { Column, Series } from "../data/series";
import type { Goal } from "../data/types";
import { asNumber } from "../words";
import { findSpikes } from "./spikes";

export type Floats = Column;
export type Mark = Series["marks"][number];

/** The grid of pixel columns on which the series of an answer lie. */
export interface Grid {
  readonly from: number;
  readonly to: number;
  readonly points: number;
}

const GROWTH = 1.5;
const LEAST_ROOM = 64;
const MOST_MARKS = 100;

/**
 * One metric of one run. A row is a row of the run (`exact`: low, high and mean are the same) or stands for all rows of
 * a pixel column. What is not finite is NaN and breaks the line; columns without rows are left out.
 */
export class Trace {
  readonly run: string;
  readonly key: string;
  readonly goal: Goal;
  readonly superseded: boolean;
  /** The ancestor whose rows these are, where its run was forked from that one. */
  readonly inherited: string | null;
  readonly exact: boolean;
  readonly grid: Grid;
  /** The series of which the run's rows were thinned; 0 of one that is exact. */
  readonly rowsPerColumn: number;
  readonly resumes: readonly number[];
  readonly marks: Mark[];
  length: number;
  x: Floats;
  low: Floats;
  high: Floats;
  mean: Floats;
  smooth: Floats | null;
  step: Floats | null;
  best: readonly [number, number] | null;
  last: readonly [number, number] | null;
  position: number;
  /** Rows at its end that are drawn here and belong to another line. */
  borrowed = 0;
  /** Changes with every row that is added: what is drawn from it is old then. */
  version = 0;
  readonly #fetched: number; // rows, before it grew
  #ema: [number, number] | null;
  #alpha: number;
  #lastCount: number; // rows in the last column, so that its mean goes on
  #spikes: { version: number; rows: number[] } | null = null;

  /** `alpha`: of the smoothing that was asked for; 1 for none. */
  constructor(series: Series, grid: Grid, alpha: number) {
    const { columns } = series;
    this.run = series.run;
    this.key = series.key;
    this.goal = series.goal;
    this.superseded = series.superseded;
    this.inherited = series.inherited;
    this.exact = series.exact;
    this.grid = grid;
    this.resumes = series.resumes;
    this.marks = [...series.marks];
    this.best = series.best;
    this.last = series.last && [series.last[0], asNumber(series.last[1])];
    this.position = series.position;
    this.#ema = series.ema ? [...series.ema] : null;
    this.#alpha = alpha;
    this.step = columns.step ?? null;
    this.smooth = columns.smooth ?? null;
    if (series.exact) {
      this.x = columns.x ?? new Float64Array(0);
      this.mean = columns.value ?? new Float64Array(this.x.length);
      this.low = this.mean;
      this.high = this.mean;
      this.length = this.x.length;
      this.rowsPerColumn = 0;
      this.#lastCount = 1;
    } else {
      const filled = filledColumns(columns, grid);
      this.x = filled.x;
      this.low = filled.low;
      this.high = filled.high;
      this.mean = filled.mean;
      this.smooth = filled.smooth;
      this.length = filled.x.length;
      this.rowsPerColumn = this.length ? series.total / this.length : 0;
      this.#lastCount = Math.max(1, this.rowsPerColumn * this.#shareOfLastColumn());
    }
    this.#fetched = this.length;
  }

  /** Do the rows that its run logs belong to it? */
  get grows(): boolean {
    return !this.superseded && this.inherited === null;
  }

  /** The smoothed line where there is one, else the rows. */
  get line(): Floats {
    return this.smooth ?? this.mean;
  }

  get columnWidth(): number {
    return this.exact ? 0 : (this.grid.to - this.grid.from) / this.grid.points;
  }

  /**
   * Rows that were logged since, in order. False where they cannot be added (one that is not in order): the series is
   * then to be asked for anew.
   */
  append(x: ArrayLike<number>, value: ArrayLike<number>, position: number): boolean {
    for (let at = 0; at < x.length; at++) {
      if (!this.#add(x[at] ?? Number.NaN, value[at] ?? Number.NaN)) return false;
    }
    this.position = position;
    this.version++;
    return true;
  }

  /**
   * Draws an inherited line on to the first point of the one that goes on from it; false where either lies outside the
   * grid. `alone`: nothing else of it is drawn.
   */
  joinTo(next: Trace, alone: boolean): boolean {
    const { from, to } = this.grid;
    const end = this.last?.[0];
    if (end === undefined || end > to || (end < from && !next.exact) || !this.length || !next.length) return false;
    const y = next.line[0] ?? Number.NaN;
    this.#push(next.x[0] ?? Number.NaN, this.smooth ? (next.mean[0] ?? y) : y, y);
    this.borrowed = alone ? 2 : 1;
    if (alone) this.#keep(this.length - 2);
    return true;
  }

  /** How far it has grown beyond the grid, as a share of it: too much of that, and it is to be fetched anew. */
  get overgrown(): number {
    const last = this.x[this.length - 1];
    if (last === undefined) return 0;
    if (this.exact) return (this.length - this.#fetched) / Math.max(this.#fetched, this.grid.points);
    return Math.max(0, (last - this.grid.to) / (this.grid.to - this.grid.from));
  }

  /** Rows that stick out of the band beside them: a stroke of their own keeps them in sight behind a smoothed line. */
  get spikes(): readonly number[] {
    if (this.#spikes?.version !== this.version) this.#spikes = { version: this.version, rows: findSpikes(this) };
    return this.#spikes.rows;
  }

  /** The first row whose x is not below `x`. */
  lowerBound(x: number): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.x[middle] ?? 0) < x) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The row closest to `x` that has a value; -1 for none. `reach`: how far off it may be. */
  nearest(x: number, reach = Number.POSITIVE_INFINITY): number {
    let right = this.lowerBound(x);
    let left = right - 1;
    while (right < this.length && Number.isNaN(this.mean[right] ?? Number.NaN)) right++;
    while (left >= 0 && Number.isNaN(this.mean[left] ?? Number.NaN)) left--;
    const after = right < this.length ? Math.abs((this.x[right] ?? 0) - x) : Number.POSITIVE_INFINITY;
    const before = left >= 0 ? Math.abs((this.x[left] ?? 0) - x) : Number.POSITIVE_INFINITY;
    if (Math.min(before, after) > reach || (left < 0 && right >= this.length)) return -1;
    return before < after ? left : right;
  }

  #add(x: number, value: number): boolean {
    const before = this.x[this.length - 1];
    if (!Number.isFinite(x)) return false;
    const finite = Number.isFinite(value);
    const smoothed = finite ? this.#smoothed(value) : Number.NaN;
    if (!finite && this.marks.length < MOST_MARKS) this.marks.push({ x, kind: "nan", text: "not a finite number" });
    if (finite) this.#remember(x, value);
    if (this.exact) {
      if (before !== undefined && x < before) return false;
      this.#push(x, finite ? value : Number.NaN, smoothed);
      return true;
    }
    if (!finite) return true;
    const width = this.columnWidth;
    const column = Math.floor((x - this.grid.from) / width);
    const centre = this.grid.from + (column + 0.5) * width;
    if (before !== undefined && centre < before - width / 2) return false;
    if (before !== undefined && centre <= before + width / 2) this.#merge(value, smoothed);
    else this.#push(centre, value, smoothed);
    return true;
  }

  #remember(x: number, value: number): void {
    this.last = [x, value];
    const best = this.best?.[1];
    if (this.goal === "min" && (best === undefined || value < best)) this.best = [x, value];
    if (this.goal === "max" && (best === undefined || value > best)) this.best = [x, value];
  }

  /** The debiased exponential moving average goes on from where the server's ended. */
  #smoothed(value: number): number {
    if (this.#ema === null || this.#alpha >= 1) return value;
    this.#ema[0] += this.#alpha * (value - this.#ema[0]);
    this.#ema[1] += this.#alpha * (1 - this.#ema[1]);
    return this.#ema[0] / this.#ema[1];
  }

  #merge(value: number, smoothed: number): void {
    const at = this.length - 1;
    this.#own();
    this.#lastCount++;
    this.low[at] = Math.min(this.low[at] ?? value, value);
    this.high[at] = Math.max(this.high[at] ?? value, value);
    this.mean[at] = (this.mean[at] ?? value) + (value - (this.mean[at] ?? value)) / this.#lastCount;
    if (this.smooth) {
      this.smooth[at] = (this.smooth[at] ?? smoothed) + (smoothed - (this.smooth[at] ?? smoothed)) / this.#lastCount;
    }
  }

  #push(x: number, value: number, smoothed: number): void {
    this.#own();
    const at = this.length;
    if (at >= this.x.length) this.#grow();
    this.x[at] = x;
    this.mean[at] = value;
    if (this.low !== this.mean) {
      this.low[at] = value;
      this.high[at] = value;
    }
    if (this.smooth) this.smooth[at] = smoothed;
    if (this.step) this.step[at] = Number.NaN;
    this.#lastCount = 1;
    this.length++;
  }

  #owned = false;

  /** The columns lie in the answer of the server, which others may share; they are copied before the first change. */
  #own(): void {
    if (this.#owned) return;
    this.#owned = true;
    this.#resize(this.length + LEAST_ROOM);
  }

  #grow(): void {
    this.#resize(Math.ceil(this.length * GROWTH) + LEAST_ROOM);
  }

  #resize(room: number): void {
    const joined = this.low === this.mean;
    this.x = resized(this.x, this.length, room);
    this.mean = resized(this.mean, this.length, room);
    this.low = joined ? this.mean : resized(this.low, this.length, room);
    this.high = joined ? this.mean : resized(this.high, this.length, room);
    this.smooth = this.smooth && resized(this.smooth, this.length, room);
    this.step = this.step && resized(this.step, this.length, room);
  }

  /** Drops the rows before one. */
  #keep(first: number): void {
    const joined = this.low === this.mean;
    const kept = (column: Floats) => column.subarray(first, this.length);
    this.x = kept(this.x);
    this.mean = kept(this.mean);
    this.low = joined ? this.mean : kept(this.low);
    this.high = joined ? this.mean : kept(this.high);
    this.smooth = this.smooth && kept(this.smooth);
    this.step = this.step && kept(this.step);
    this.length -= first;
  }

  #shareOfLastColumn(): number {
    const centre = this.x[this.length - 1];
    if (centre === undefined || this.last === null) return 1;
    const begin = centre - this.columnWidth / 2;
    return Math.min(1, Math.max(0, (this.last[0] - begin) / this.columnWidth));
  }
}

/** A trace that is made here, such as the mean of a group. */
export function madeTrace(
  name: { run: string; key: string; goal?: Goal },
  grid: Grid,
  columns: { x: Float64Array; low: Float64Array; high: Float64Array; mean: Float64Array },
): Trace {
  const rows = columns.x.length;
  const series: Series = {
    run: name.run,
    key: name.key,
    goal: name.goal ?? null,
    superseded: false,
    inherited: null,
    exact: true,
    rows,
    total: rows,
    columns: { x: columns.x, value: columns.mean },
    position: rows,
    ema: null,
    last: null,
    best: null,
    resumes: [],
    marks: [],
  };
  const trace = new Trace(series, grid, 1);
  trace.low = columns.low;
  trace.high = columns.high;
  return trace;
}

function resized(column: Floats, length: number, room: number): Floats {
  const larger = column instanceof Float32Array ? new Float32Array(room) : new Float64Array(room);
  larger.set(column.subarray(0, length));
  return larger;
}

/** The columns of the grid that have rows. */
function filledColumns(columns: Series["columns"], grid: Grid) {
  const none = new Float32Array(0);
  const { low = none, high = none, mean = none, smooth } = columns;
  const width = (grid.to - grid.from) / grid.points;
  let filled = 0;
  for (let at = 0; at < mean.length; at++) if (Number.isFinite(mean[at])) filled++;
  const whole = filled === mean.length;
  const x = new Float64Array(filled);
  const kept = whole ? { low, high, mean } : { low: shorter(filled), high: shorter(filled), mean: shorter(filled) };
  const keptSmooth = smooth === undefined ? null : whole ? smooth : shorter(filled);
  for (let at = 0, next = 0; at < mean.length; at++) {
    if (!Number.isFinite(mean[at])) continue;
    x[next] = grid.from + (at + 0.5) * width;
    if (!whole) {
      kept.low[next] = low[at] ?? Number.NaN;
      kept.high[next] = high[at] ?? Number.NaN;
      kept.mean[next] = mean[at] ?? Number.NaN;
      if (keptSmooth && smooth) keptSmooth[next] = smooth[at] ?? Number.NaN;
    }
    next++;
  }
  return { x, ...kept, smooth: keptSmooth };
}

function shorter(length: number): Float32Array {
  return new Float32Array(length);
}
