import { describe, expect, test } from "vitest";
import type { Series } from "../data/series";
import { bandPath, linePath, Mapping, type PathSink, rowPath, rowsInside, spikePath } from "./geometry";
import type { Scale } from "./scale";
import { madeTrace, Trace } from "./trace";

class Recorder implements PathSink {
  readonly points: [number, number][] = [];
  strokes = 0;
  moveTo(x: number, y: number): void {
    this.strokes++;
    this.points.push([x, y]);
  }
  lineTo(x: number, y: number): void {
    this.points.push([x, y]);
  }
  closePath(): void {}
}

const scale = (min: number, max: number, log = false): Scale => ({ min, max, log, kind: "number" });
const BOX = { left: 0, top: 0, width: 100, height: 100 };
const made = (y: number[], x = y.map((_, at) => at)) => {
  const values = Float64Array.from(y);
  const columns = { x: Float64Array.from(x), low: values, high: values, mean: values };
  return madeTrace({ run: "a", key: "loss" }, { from: 0, to: y.length, points: y.length }, columns);
};

/** `rows` values with one-step spikes, reduced to columns as the server does. `alpha`: of a smoothed line, 1 for none. */
function reduced(rows: number, points: number, spikes: number[], alpha = 1): Trace {
  const low = new Float32Array(points).fill(Number.POSITIVE_INFINITY);
  const high = new Float32Array(points).fill(Number.NEGATIVE_INFINITY);
  const mean = new Float32Array(points);
  const smooth = new Float32Array(points);
  const counts = new Float32Array(points);
  let average = 1;
  const spiked = new Set(spikes);
  for (let row = 0; row < rows; row++) {
    const column = Math.floor((row * points) / rows);
    const value = spiked.has(row) ? 10 : 1 + ((row * 7919) % 100) / 1000;
    low[column] = Math.min(low[column] ?? 0, value);
    high[column] = Math.max(high[column] ?? 0, value);
    mean[column] = (mean[column] ?? 0) + value;
    average += alpha * (value - average);
    smooth[column] = (smooth[column] ?? 0) + average;
    counts[column] = (counts[column] ?? 0) + 1;
  }
  for (const sums of [mean, smooth]) {
    for (let column = 0; column < points; column++) sums[column] = (sums[column] ?? 0) / (counts[column] ?? 1);
  }
  const series: Series = {
    run: "a",
    key: "loss",
    goal: "min",
    superseded: false,
    inherited: null,
    exact: false,
    rows: points,
    total: rows,
    columns: alpha < 1 ? { low, high, mean, smooth } : { low, high, mean },
    position: rows,
    ema: null,
    last: null,
    best: null,
    resumes: [],
    marks: [],
  };
  return new Trace(series, { from: 0, to: rows, points }, alpha);
}

describe("no spike is lost", () => {
  const spikes = Array.from({ length: 20 }, (_, at) => 1000 + at * 9973);
  test.each([400, 701, 1000, 1333, 2000])("20 spikes of one step in 200,000 at a width of %d", (width) => {
    const trace = reduced(200_000, width, spikes);
    const mapping = new Mapping(scale(0, 200_000), scale(0, 11), { ...BOX, width });
    const band = new Recorder();
    bandPath(band, trace, mapping, ...rowsInside(trace, mapping));
    const strokes = new Recorder();
    spikePath(strokes, trace, mapping);
    const top = mapping.toY(10) + 0.01;
    for (const step of spikes) {
      const near = ([x, y]: [number, number]) => Math.abs(x - mapping.toX(step)) <= 1 && y <= top;
      expect(band.points.some(near)).toBe(true);
      expect(strokes.points.some(near)).toBe(true);
    }
  });

  describe.each([0.6, 0.99])("nor behind a line that is smoothed by %d", (smoothing) => {
    test.each([1.02, 1.16, 1.49, 1.75, 2])("where a column holds %d rows", (rowsPerColumn) => {
      const width = 604;
      const rows = Math.round(width * rowsPerColumn);
      const few = Array.from({ length: 20 }, (_, at) => Math.round(((at + 0.5) * rows) / 20));
      const trace = reduced(rows, width, few, 1 - smoothing);
      const mapping = new Mapping(scale(0, rows), scale(0, 11), { ...BOX, width });
      const raw = new Recorder();
      rowPath(raw, trace, mapping, ...rowsInside(trace, mapping));
      bandPath(raw, trace, mapping, ...rowsInside(trace, mapping));
      const strokes = new Recorder();
      spikePath(strokes, trace, mapping);
      const top = mapping.toY(10) + 0.01;
      for (const step of few) {
        const near = ([x, y]: [number, number]) => Math.abs(x - mapping.toX(step)) <= 1 && y <= top;
        expect(raw.points.some(near)).toBe(true); // of a column of several rows, in the band
        expect(strokes.points.some(near)).toBe(true);
      }
      expect(trace.spikes.length).toBeLessThanOrEqual(2 * few.length); // also the row from which the line comes back
    });
  });

  test("where columns hold one row or two, every row is on the line behind a smoothed one", () => {
    const columns = {
      low: Float32Array.from([1, 5, 2, 1, 1]),
      high: Float32Array.from([1, 5, 4, 3, 3]),
      mean: Float32Array.from([1, 5, 3, 2, 2]),
      smooth: Float32Array.from([2, 2, 2, 2, 2]),
    };
    const other = {
      key: "loss",
      goal: null,
      superseded: false,
      inherited: null,
      rows: 5,
      ema: null,
      last: null,
      best: null,
    };
    const trace = new Trace(
      { ...other, run: "a", exact: false, total: 8, columns, position: 8, resumes: [], marks: [] },
      { from: 0, to: 5, points: 5 },
      0.4,
    );
    const recorder = new Recorder();
    rowPath(recorder, trace, new Mapping(scale(0, 5), scale(0, 5), BOX), 0, trace.length);
    // The last two columns have a band, and need no line.
    expect(recorder.points.map(([x, y]) => [x / 20 - 0.5, 5 - y / 20])).toEqual([
      [0, 1],
      [1, 5],
      [2, 2],
      [2, 4],
    ]);
    expect(recorder.strokes).toBe(1);
  });

  test("nor by a line with many more rows than pixels", () => {
    const values = Array.from({ length: 50_000 }, (_, at) => (at === 31_234 ? 9 : 1));
    const recorder = new Recorder();
    const trace = made(values);
    const mapping = new Mapping(scale(0, 50_000), scale(0, 10), BOX);
    linePath(recorder, trace, trace.line, mapping, 0, trace.length);
    expect(Math.min(...recorder.points.map(([, y]) => y))).toBeCloseTo(mapping.toY(9));
    expect(recorder.points.length).toBeLessThan(500);
  });
});

test("NaN breaks the line", () => {
  const recorder = new Recorder();
  const trace = made([1, 2, Number.NaN, 3, 4]);
  linePath(recorder, trace, trace.line, new Mapping(scale(0, 4), scale(0, 5), BOX), 0, 5);
  expect(recorder.strokes).toBe(2);
  expect(recorder.points).toHaveLength(4);
});

test("a log axis has no place for what is not above 0", () => {
  const recorder = new Recorder();
  const trace = made([1, -2, 10, 100]);
  linePath(recorder, trace, trace.line, new Mapping(scale(0, 3), scale(1, 100, true), BOX), 0, 4);
  expect(recorder.points.map(([, y]) => Math.round(y))).toEqual([100, 50, 0]);
});

test("a line enters from outside of the box", () => {
  const trace = made([1, 2, 3, 4, 5, 6]);
  expect(rowsInside(trace, new Mapping(scale(1.5, 3.5), scale(0, 5), BOX))).toEqual([1, 6]);
});

test("pixels and values are each other's inverse", () => {
  const mapping = new Mapping(scale(1, 1000, true), scale(-1, 1), { left: 30, top: 10, width: 200, height: 80 });
  expect(mapping.fromX(mapping.toX(42))).toBeCloseTo(42, 9);
  expect(mapping.fromY(mapping.toY(0.25))).toBeCloseTo(0.25, 9);
  expect(mapping.toX(1)).toBeCloseTo(30);
  expect(mapping.toY(-1)).toBeCloseTo(90);
});
