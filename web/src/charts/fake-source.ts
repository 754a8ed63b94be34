/** A source with made series, for tests: it reduces and smooths as the server does. */
import type { Series, SeriesAnswer } from "../data/series";
import type { ChangesListener, ChangesQuery, SeriesQuery, Source } from "../data/source";
import type { BoardInfo, Goal, MetricInfo, RunMetrics, RunRow, RunTable, SeriesEntry } from "../data/types";

export interface MadeSeries {
  x: Float64Array;
  value: Float64Array;
  goal?: Goal;
  marks?: SeriesEntry["marks"];
  resumes?: number[];
  superseded?: { x: Float64Array; value: Float64Array };
}

export interface MadeRun {
  id: string;
  row?: Partial<RunRow>;
  settings?: Record<string, unknown>;
  /** The run that it was forked from, and at which x. */
  from?: { run: string; at: number };
  series: Record<string, MadeSeries>;
}

export class FakeSource implements Partial<Source> {
  readonly live = true;
  readonly asked: SeriesQuery[] = [];
  listener: ChangesListener | null = null;
  followed: (() => ChangesQuery) | null = null;

  constructor(readonly made: readonly MadeRun[]) {}

  /** It has what charts ask for; anything else is no part of it. */
  get source(): Source {
    return this as unknown as Source;
  }

  async board(): Promise<BoardInfo> {
    return { root: "~/ablations/runs", version: "0", writable: false, chosen: this.made.map(({ id }) => id) };
  }

  async table(): Promise<RunTable> {
    const rows = this.made.map((run, at) => rowOf(run, at));
    return {
      position: "0",
      total: rows.length,
      columns: [],
      rows,
      groups: [],
      settings: [],
      metrics: [...new Set(this.made.flatMap(({ series }) => Object.keys(series)))],
      unread: 0,
      problem: null,
    };
  }

  async metrics(runs: readonly string[]): Promise<RunMetrics[]> {
    return this.made
      .filter(({ id }) => runs.includes(id))
      .map(({ id, series, settings = {} }) => ({
        id,
        settings,
        axes: ["step", "tokens", "epoch", "wall time", "relative time"],
        metrics: Object.entries(series).map(([key, made]) => metricOf(key, made, Object.keys(series))),
      }));
  }

  async curves(): Promise<[]> {
    return [];
  }

  async series(query: SeriesQuery): Promise<SeriesAnswer> {
    this.asked.push(query);
    const wanted = this.made.filter(({ id }) => query.runs.includes(id));
    const all = wanted.flatMap((run) =>
      query.keys.flatMap((key) => {
        const made = run.series[key];
        return made ? [{ run: run.id, key, made, superseded: false }] : [];
      }),
    );
    for (const { run, key, made } of query.superseded ? [...all] : []) {
      if (made.superseded) all.push({ run, key, made: { ...made, ...made.superseded }, superseded: true });
    }
    const inherited = query.inherited ? wanted.flatMap((fork) => this.#inherited(fork, query.keys)) : [];
    const spans = [...inherited, ...all];
    const from = query.from ?? Math.min(...spans.map(({ made }) => made.x[0] ?? 0));
    const to = query.to ?? Math.max(...spans.map(({ made }) => made.x.at(-1) ?? 0)) + 1;
    const grid = { from, to, points: query.points };
    for (const { id, series } of this.made.filter((run) => query.beside?.includes(run.id))) {
      for (const key of query.keys) if (series[key]) all.push({ run: id, key, made: series[key], superseded: false });
    }
    const series = all.map(({ run, key, made, superseded }) => ({
      ...reduced(made, grid, query.alpha ?? 1),
      run,
      key,
      superseded,
    }));
    const before = inherited.map(({ run, key, made, origin }) => ({
      ...reduced(made, grid, query.alpha ?? 1),
      run,
      key,
      inherited: origin,
      best: null,
    }));
    return { axis: query.axis, ...grid, dx: (to - from) / query.points, series: [...before, ...series] };
  }

  /** The rows of the runs that another was forked from, up to where it began. */
  #inherited(
    { id, from }: MadeRun,
    keys: readonly string[],
  ): { run: string; key: string; made: MadeSeries; origin: string }[] {
    const parent = this.made.find((run) => run.id === from?.run);
    if (!parent || !from) return [];
    const older = this.#inherited(parent, keys).map((part) => ({ ...part, run: id }));
    const own = keys.flatMap((key) => {
      const made = parent.series[key];
      if (!made) return [];
      const end = made.x.findLastIndex((x) => x <= from.at) + 1;
      const part = { ...made, x: made.x.slice(0, end), value: made.value.slice(0, end) };
      return [{ run: id, key, made: part, origin: from.run }];
    });
    return [...older, ...own];
  }

  changes(query: () => ChangesQuery, listener: ChangesListener): () => void {
    this.followed = query;
    this.listener = listener;
    query();
    listener.connected(true);
    return () => {
      if (this.listener === listener) this.listener = null;
    };
  }

  /** Logs a row and tells whoever follows. */
  write(run: string, key: string, x: number, value: number): void {
    const made = this.made.find(({ id }) => id === run)?.series[key];
    if (!made) return;
    made.x = Float64Array.from([...made.x, x]);
    made.value = Float64Array.from([...made.value, value]);
    this.listener?.series({ run, key, axis: "step", position: made.x.length, x: [x], value: [value], again: false });
  }
}

function rowOf({ id, row, series }: MadeRun, at: number): RunRow {
  const main = series.loss;
  return {
    id,
    name: id,
    status: "completed",
    step: main?.x.at(-1) ?? null,
    total_steps: null,
    metric: "loss",
    last: main?.value.at(-1) ?? null,
    created: 1_700_000_000 - at * 100,
    seconds: 100,
    age: 10,
    recipe: "from-scratch",
    experiment: null,
    group: null,
    parent: null,
    compare_to: null,
    tags: [],
    hidden: false,
    colour: at % 12,
    warning: null,
    values: [],
    ...row,
  };
}

function metricOf(key: string, { x, value, goal = null }: MadeSeries, keys: string[]): MetricInfo {
  const low = Math.min(...value.subarray(0, 10_000));
  const high = Math.max(...value.subarray(0, 10_000));
  const training = key.slice(key.indexOf("/") + 1);
  return {
    key,
    goal,
    rows: x.length,
    last: value.at(-1) ?? null,
    last_step: x.at(-1) ?? null,
    best: goal === "min" ? low : goal === "max" ? high : null,
    best_step: null,
    low,
    high,
    constant: low === high,
    held_out_of: key.startsWith("validation/") && keys.includes(training) ? training : null,
  };
}

function reduced(made: MadeSeries, grid: { from: number; to: number; points: number }, alpha: number): Series {
  const { x, value, goal = null, marks = [], resumes = [] } = made;
  const smooth = new Float64Array(x.length);
  let numerator = 0;
  let weight = 0;
  for (let row = 0; row < x.length; row++) {
    numerator = alpha * (value[row] ?? 0) + (1 - alpha) * numerator;
    weight = alpha + (1 - alpha) * weight;
    smooth[row] = numerator / weight;
  }
  const rows = [...x.keys()].filter((row) => (x[row] ?? 0) >= grid.from && (x[row] ?? 0) <= grid.to);
  const exact = rows.length <= grid.points;
  let best = -1;
  for (let row = 0; row < x.length; row++) {
    const now = value[row] ?? Number.NaN;
    const before = value[best] ?? Number.NaN;
    if (best < 0 || (goal === "min" ? now < before : now > before)) best = row;
  }
  const common = {
    run: "",
    key: "",
    goal,
    superseded: false,
    inherited: null,
    exact,
    rows: exact ? rows.length : grid.points,
    total: rows.length,
    position: x.length,
    ema: [numerator, weight] as [number, number],
    last: x.length ? ([x.at(-1), value.at(-1)] as [number, number]) : null,
    best: goal && best >= 0 ? ([x[best], value[best]] as [number, number]) : null,
    resumes,
    marks,
  };
  const smoothed = alpha < 1 && x.length > 30;
  if (exact) {
    const pick = (column: Float64Array) => Float64Array.from(rows, (row) => column[row] ?? 0);
    const columns = { x: pick(x), value: pick(value), ...(smoothed ? { smooth: pick(smooth) } : {}) };
    return { ...common, columns };
  }
  const { points, from, to } = grid;
  const low = new Float32Array(points).fill(Number.NaN);
  const high = new Float32Array(points).fill(Number.NaN);
  const mean = new Float32Array(points).fill(Number.NaN);
  const smoothMean = new Float32Array(points).fill(Number.NaN);
  const counts = new Uint32Array(points);
  for (const row of rows) {
    const at = Math.min(points - 1, Math.floor((((x[row] ?? 0) - from) / (to - from)) * points));
    const now = value[row] ?? 0;
    const amount = (counts[at] ?? 0) + 1;
    counts[at] = amount;
    const before = amount === 1 ? now : (mean[at] ?? now);
    low[at] = amount === 1 ? now : Math.min(low[at] ?? now, now);
    high[at] = amount === 1 ? now : Math.max(high[at] ?? now, now);
    mean[at] = before + (now - before) / amount;
    const smoothBefore = amount === 1 ? (smooth[row] ?? 0) : (smoothMean[at] ?? 0);
    smoothMean[at] = smoothBefore + ((smooth[row] ?? 0) - smoothBefore) / amount;
  }
  return { ...common, columns: { low, high, mean, ...(smoothed ? { smooth: smoothMean } : {}) } };
}
