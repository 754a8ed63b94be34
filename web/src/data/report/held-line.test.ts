import { expect, test } from "vitest";
import type { ColumnEntry, Contents, HeldSeries } from "./contents";
import { ReportData } from "./contents";
import { HeldLine } from "./held-line";
import { smoothColumns, smoothRows } from "./smoothing";

/** Writes columns as `linnet report` does. */
class Pool {
  readonly columns: ColumnEntry[] = [];
  #bytes: number[] = [];

  add(values: ArrayLike<number>, kind: "f8" | "f4" = "f8"): number {
    const numbers = kind === "f8" ? Float64Array.from(values) : Float32Array.from(values);
    const bytes = new Uint8Array(numbers.buffer);
    const width = numbers.BYTES_PER_ELEMENT;
    this.columns.push({ kind, offset: this.#bytes.length, rows: numbers.length });
    for (let significance = 0; significance < width; significance++) {
      for (let row = 0; row < numbers.length; row++) this.#bytes.push(bytes[row * width + significance] ?? 0);
    }
    return this.columns.length - 1;
  }

  addIntegers(differences: ArrayLike<number>, base: number, scale: number): number {
    const at = this.add(new Float32Array(Int32Array.from(differences).buffer), "f4");
    this.columns[at] = { ...(this.columns[at] as ColumnEntry), kind: "i4", base, scale };
    return at;
  }

  data(): ReportData {
    const head = new TextEncoder().encode(JSON.stringify({ columns: this.columns } satisfies Partial<Contents>));
    const buffer = new ArrayBuffer(8 + head.length + this.#bytes.length);
    new DataView(buffer).setUint32(0, 0x31524e4c, true);
    new DataView(buffer).setUint32(4, head.length, true);
    new Uint8Array(buffer).set(head, 8);
    new Uint8Array(buffer).set(this.#bytes, 8 + head.length);
    return new ReportData(buffer);
  }
}

const ROWS = 10_000;
const POINTS = 100;
const TAIL = 10;
const steps = Float64Array.from({ length: ROWS }, (_, row) => row + 1);
const values = steps.map(
  (step) => 2 + 5 * Math.exp(-step / 900) + (step === 4321 ? 40 : 0.1 * Math.sin(step * 12.9898)),
);

function facts(scale: number) {
  return {
    span: [scale, ROWS * scale] as [number, number],
    last: [ROWS * scale, 1] as [number, number],
    best: null,
    resumes: [],
    marks: [{ x: 4321 * scale, kind: "spike" as const, text: "" }],
  };
}

function shortSeries(pool: Pool, rows: number): HeldSeries {
  return {
    key: "loss",
    goal: "min",
    superseded: false,
    inherited: null,
    total: rows,
    axes: { step: facts(1), "relative time": facts(0.5) },
    rows: {
      first: 0,
      step: pool.add(steps.subarray(0, rows)),
      value: pool.add(values.subarray(0, rows)),
      x: { "relative time": pool.add(steps.subarray(0, rows).map((step) => step / 2)) },
    },
    grid: null,
  };
}

function longSeries(pool: Pool): HeldSeries {
  const width = (ROWS - 1) / POINTS;
  const columns = Array.from({ length: POINTS }, (_, at) =>
    [...steps.keys()].filter((row) => Math.min(POINTS - 1, Math.floor((row + 1 - 1) / width)) === at),
  );
  const ofRows = (made: (rows: readonly number[]) => number) =>
    columns.map((rows) => made(rows.map((row) => values[row] ?? 0)));
  const tail = (column: Float64Array) => pool.add(column.subarray(ROWS - TAIL));
  return {
    ...shortSeries(pool, 1),
    total: ROWS,
    rows: {
      first: ROWS - TAIL,
      step: tail(steps),
      value: tail(values),
      x: { "relative time": tail(steps.map((s) => s / 2)) },
    },
    grid: {
      from: 1,
      to: ROWS,
      points: POINTS,
      low: pool.add(
        ofRows((rows) => Math.min(...rows)),
        "f4",
      ),
      high: pool.add(
        ofRows((rows) => Math.max(...rows)),
        "f4",
      ),
      mean: pool.add(
        ofRows((rows) => rows.reduce((sum, value) => sum + value, 0) / rows.length),
        "f4",
      ),
      count: pool.add(columns.map((rows) => rows.length)),
      x: {
        "relative time": pool.addIntegers(columns.map((_, at) => (at ? width : width / 2)).map(Math.round), 0.5, 0.5),
      },
    },
  };
}

function line(make: (pool: Pool) => HeldSeries, axis: Parameters<typeof HeldLine.on>[0] = "step"): HeldLine {
  const pool = new Pool();
  const series = make(pool);
  const made = HeldLine.on(axis, pool.data(), "run", series, 1000);
  if (!made) throw new Error("not on this axis");
  return made;
}

test("a short series is exact, with one row before and after the range", () => {
  const answer = line((pool) => shortSeries(pool, 500)).within({ from: 100, to: 110, points: 50 }, 1);
  expect(answer.exact).toBe(true);
  expect(answer.total).toBe(11);
  expect([...(answer.columns.x ?? [])]).toEqual(Array.from({ length: 13 }, (_, at) => 99 + at));
  expect(answer.columns.value?.[1]).toBe(values[99]);
});

test("more rows than columns become buckets of their least, greatest and mean", () => {
  const answer = line((pool) => shortSeries(pool, 500)).within({ from: 1, to: 500, points: 50 }, 1);
  expect(answer.exact).toBe(false);
  expect(answer.total).toBe(500);
  const first = [...values.subarray(0, 10)];
  expect(answer.columns.low?.[0]).toBeCloseTo(Math.min(...first), 5);
  expect(answer.columns.mean?.[0]).toBeCloseTo(first.reduce((sum, value) => sum + value, 0) / 10, 5);
});

test("the grid that a report holds comes out as it is", () => {
  const pool = new Pool();
  const series = longSeries(pool);
  const data = pool.data();
  const answer = HeldLine.on("step", data, "run", series, 0)?.within({ from: 1, to: ROWS, points: POINTS }, 1);
  expect(answer?.columns.mean).toEqual(data.numbers(series.grid?.mean ?? -1));
  expect(answer?.columns.high).toEqual(data.numbers(series.grid?.high ?? -1));
  expect(answer?.total).toBe(ROWS);
});

test.each([400, 100, 33, 7])("a spike is there on %i columns", (points) => {
  const { columns } = line(longSeries).within({ from: 1, to: ROWS, points }, 1);
  expect(Math.max(...[...(columns.high ?? [])].filter(Number.isFinite))).toBeGreaterThan(40);
});

test("a zoom within the last rows is exact, one that is finer than the rest says how coarse that is", () => {
  const held = line(longSeries);
  const tail = held.within({ from: ROWS - 5, to: ROWS, points: 300 }, 0.5);
  expect(tail.exact).toBe(true);
  expect(tail.columns.value?.at(-1)).toBe(values[ROWS - 1]);
  expect(held.coarseness({ from: ROWS - 5, to: ROWS, points: 300 })).toBe(0);
  expect(held.coarseness({ from: 1, to: ROWS, points: 90 })).toBe(0);
  expect(held.coarseness({ from: 4000, to: 5000, points: 300 })).toBe(100);
});

test("within a single column of the report the line goes from edge to edge", () => {
  const { columns, total } = line(longSeries).within({ from: 5012, to: 5018, points: 60 }, 1);
  const drawn = [...(columns.mean ?? [])].flatMap((value, at) => (Number.isFinite(value) ? [at] : []));
  expect(drawn).toEqual([0, 59]);
  expect(total).toBe(0);
});

test("on other axes columns stand where their rows do, and wall time begins when the run was made", () => {
  const { columns } = line(longSeries, "relative time").within({ from: 0.5, to: ROWS / 2, points: POINTS }, 1);
  expect(Math.max(...(columns.high ?? []))).toBeGreaterThan(40);
  const wall = line(longSeries, "wall time");
  expect(wall.facts.span).toEqual([1000.5, 1000 + ROWS / 2]);
  expect(wall.facts.marks[0]?.x).toBe(1000 + 4321 / 2);
  const pool = new Pool();
  expect(HeldLine.on("epoch", pool.data(), "run", longSeries(pool), 0)).toBeNull();
});

test("marks beyond the range are left out", () => {
  const held = line(longSeries);
  expect(held.within({ from: 4000, to: 5000, points: 10 }, 1).marks).toHaveLength(1);
  expect(held.within({ from: 5000, to: 6000, points: 10 }, 1).marks).toHaveLength(0);
});

test.each([0.5, 0.1, 0.01])("smoothing by columns is close to smoothing by rows, with a weight of %f", (alpha) => {
  const exact = smoothRows(values, alpha);
  const size = ROWS / POINTS;
  const means = Array.from({ length: POINTS }, (_, at) => mean(values.subarray(at * size, (at + 1) * size)));
  const smoothed = smoothColumns(means, new Array(POINTS).fill(size), alpha);
  for (let at = 0; at < POINTS; at++) {
    const wanted = mean(exact.subarray(at * size, (at + 1) * size));
    // Within the first column the curve falls fastest, and the spike lags behind into the next one.
    expect(Math.abs((smoothed[at] ?? Number.NaN) - wanted)).toBeLessThan(
      at === 0 || at === 43 || at === 44 ? 0.5 : 0.06,
    );
  }
});

test("a constant stays that constant, smoothed", () => {
  const rounded = (smoothed: Float64Array) => Array.from(smoothed, (value) => Math.round(value * 1e9) / 1e9);
  expect(rounded(smoothColumns([3, Number.NaN, 3], [5, 0, 7], 0.1))).toEqual([3, Number.NaN, 3]);
  expect(rounded(smoothRows([3, Number.NaN, 3], 0.1))).toEqual([3, Number.NaN, 3]);
});

function mean(rows: ArrayLike<number>): number {
  return Array.from(rows).reduce((sum, value) => sum + value, 0) / rows.length;
}
