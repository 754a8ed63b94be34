import { describe, expect, test } from "vitest";
import type { Series } from "../data/series";
import { Trace } from "./trace";

const GRID = { from: 0, to: 100, points: 10 };

function series(changes: Partial<Series>): Series {
  return {
    run: "a",
    key: "loss",
    goal: "min",
    superseded: false,
    inherited: null,
    exact: true,
    rows: 0,
    total: 0,
    columns: {},
    position: 0,
    ema: null,
    last: null,
    best: null,
    resumes: [],
    marks: [],
    ...changes,
  };
}

function exactSeries(x: number[], value: number[], changes: Partial<Series> = {}): Series {
  return series({ columns: { x: Float64Array.from(x), value: Float64Array.from(value) }, ...changes });
}

function buckets(mean: number[], changes: Partial<Series> = {}): Series {
  const low = Float32Array.from(mean, (value) => value - 1);
  const high = Float32Array.from(mean, (value) => value + 1);
  return series({ exact: false, total: 1000, columns: { low, high, mean: Float32Array.from(mean) }, ...changes });
}

describe("rows as they were logged", () => {
  test("live rows are added at the end, and the arrays of the answer stay as they were", () => {
    const answer = exactSeries([1, 2], [5, 4]);
    const trace = new Trace(answer, GRID, 1);
    for (let step = 3; step < 300; step++) expect(trace.append([step], [1 / step], step)).toBe(true);
    expect(trace.length).toBe(299);
    expect(trace.x[298]).toBe(299);
    expect(trace.mean[298]).toBe(1 / 299);
    expect(trace.low).toBe(trace.mean);
    expect([...(answer.columns.x ?? [])]).toEqual([1, 2]);
    expect(trace.best).toEqual([299, 1 / 299]);
    expect(trace.position).toBe(299);
  });

  test("a row that goes back is not added: the series is asked for anew", () => {
    const trace = new Trace(exactSeries([1, 2], [5, 4]), GRID, 1);
    expect(trace.append([1.5], [3], 3)).toBe(false);
  });

  test("NaN breaks the line and is marked", () => {
    const trace = new Trace(exactSeries([1], [5]), GRID, 1);
    trace.append([2, 3], [Number.NaN, 4], 3);
    expect(trace.mean[1]).toBeNaN();
    expect(trace.marks).toEqual([{ x: 2, kind: "nan", text: "not a finite number" }]);
    expect(trace.last).toEqual([3, 4]);
    expect(trace.nearest(2)).not.toBe(1);
  });

  test("the smoothed line goes on exactly as over all rows at once", () => {
    const alpha = 0.3;
    const values = Array.from({ length: 50 }, (_, at) => Math.sin(at) + at / 10);
    const smoothed = (rows: number[]) => {
      let numerator = 0;
      let weight = 0;
      return rows.map((value) => {
        numerator = alpha * value + (1 - alpha) * numerator;
        weight = alpha + (1 - alpha) * weight;
        return { numerator, weight, value: numerator / weight };
      });
    };
    const whole = smoothed(values);
    const begin = whole[19];
    const begun = exactSeries([...Array(20).keys()], values.slice(0, 20), {
      ema: [begin?.numerator ?? 0, begin?.weight ?? 0],
    });
    const smooth = Float64Array.from(whole.slice(0, 20), (row) => row.value);
    const trace = new Trace({ ...begun, columns: { ...begun.columns, smooth } }, GRID, alpha);
    trace.append(
      [...Array(30).keys()].map((at) => at + 20),
      values.slice(20),
      50,
    );
    for (let at = 0; at < 50; at++) expect(trace.smooth?.[at]).toBeCloseTo(whole[at]?.value ?? 0, 9);
  });
});

describe("pixel columns", () => {
  test("columns without rows are left out", () => {
    const trace = new Trace(buckets([1, 2, Number.NaN, 4]), GRID, 1);
    expect(trace.length).toBe(3);
    expect([...trace.x]).toEqual([5, 15, 35]);
    expect([...trace.high]).toEqual([2, 3, 5]);
  });

  test("a live row widens the band of its column, or begins the next", () => {
    const trace = new Trace(buckets([1, 2, 3], { last: [25, 3] }), GRID, 1);
    trace.append([26, 27], [9, 3], 1002);
    expect(trace.length).toBe(3);
    expect(trace.high[2]).toBe(9);
    expect(trace.low[2]).toBe(2);
    expect(trace.mean[2]).toBeGreaterThan(3);
    expect(trace.mean[2]).toBeLessThan(3.1);
    trace.append([31], [7], 1003);
    expect(trace.length).toBe(4);
    expect(trace.x[3]).toBe(35);
    expect([trace.low[3], trace.mean[3], trace.high[3]]).toEqual([7, 7, 7]);
  });

  test("beyond the grid the columns go on, and how far is told", () => {
    const trace = new Trace(buckets([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), GRID, 1);
    expect(trace.overgrown).toBe(0);
    trace.append([112], [5], 1001);
    expect(trace.x[10]).toBeCloseTo(115);
    expect(trace.overgrown).toBeCloseTo(0.15);
  });

  test("one step that sticks out of its column is a spike", () => {
    const spiked = buckets(Array.from({ length: 10 }, () => 1));
    if (spiked.columns.high) spiked.columns.high[6] = 40;
    expect(new Trace(spiked, GRID, 1).spikes).toEqual([6]);
    expect(new Trace(buckets([1, 2, 3, 4, 5]), GRID, 1).spikes).toEqual([]);
  });
});
