import { describe, expect, test } from "vitest";
import { decodeSeries } from "./series";
import type { SeriesEntry, SeriesHeader } from "./types";

const ENTRY: SeriesEntry = {
  run: "a",
  key: "loss",
  goal: "min",
  superseded: false,
  inherited: null,
  exact: true,
  rows: 0,
  total: 0,
  offset: 0,
  columns: [],
  position: 0,
  ema: null,
  last: null,
  best: null,
  resumes: [],
  marks: [],
};

/** The bytes of an answer, as the server writes them. */
function encode(header: SeriesHeader, columns: (Float64Array | Float32Array)[]): ArrayBuffer {
  let text = JSON.stringify(header);
  text = text.padEnd(Math.ceil(new TextEncoder().encode(text).length / 8) * 8, " ");
  const head = new TextEncoder().encode(text);
  const size = columns.reduce((sum, column) => sum + column.byteLength, 0);
  const bytes = new Uint8Array(8 + head.length + size);
  bytes.set(new TextEncoder().encode("LNS1"));
  new DataView(bytes.buffer).setUint32(4, head.length, true);
  bytes.set(head, 8);
  let position = 8 + head.length;
  for (const column of columns) {
    bytes.set(new Uint8Array(column.buffer, column.byteOffset, column.byteLength), position);
    position += column.byteLength;
  }
  return bytes.buffer;
}

const GRID = { axis: "step", from: 0, to: 10, points: 5 } as const;

describe("series", () => {
  test("exact rows are float64, bit by bit", () => {
    const entry: SeriesEntry = { ...ENTRY, rows: 3, columns: ["x", "value"] };
    const bytes = encode({ ...GRID, series: [entry] }, [
      new Float64Array([0, 1, 2]),
      new Float64Array([0.1, Number.NaN, 2 ** 53]),
    ]);
    const answer = decodeSeries(bytes);
    expect(answer.dx).toBe(2);
    expect([...(answer.series[0]?.columns.x ?? [])]).toEqual([0, 1, 2]);
    expect([...(answer.series[0]?.columns.value ?? [])]).toEqual([0.1, Number.NaN, 2 ** 53]);
  });

  test("buckets are float32, and a second series lies behind the first", () => {
    const first: SeriesEntry = { ...ENTRY, exact: false, rows: 1, columns: ["low", "high", "mean"] };
    const second: SeriesEntry = { ...ENTRY, run: "b", exact: false, rows: 2, offset: 12, columns: ["low", "high"] };
    const answer = decodeSeries(
      encode({ ...GRID, series: [first, second] }, [new Float32Array([1, 3, 2]), new Float32Array([4, 5, 6, 7])]),
    );
    expect(answer.series[1]?.run).toBe("b");
    expect([...(answer.series[0]?.columns.mean ?? [])]).toEqual([2]);
    expect([...(answer.series[1]?.columns.high ?? [])]).toEqual([6, 7]);
  });

  test("float64 columns that are not aligned are read all the same", () => {
    const buckets: SeriesEntry = { ...ENTRY, exact: false, rows: 1, columns: ["low"] };
    const rows: SeriesEntry = { ...ENTRY, rows: 1, offset: 4, columns: ["x"] };
    const answer = decodeSeries(
      encode({ ...GRID, series: [buckets, rows] }, [new Float32Array([1]), new Float64Array([0.25])]),
    );
    expect(answer.series[1]?.columns.x?.[0]).toBe(0.25);
  });

  test("what is no answer, or is cut, is refused in words", () => {
    const whole = encode({ ...GRID, series: [{ ...ENTRY, rows: 2, columns: ["x"] }] }, [new Float64Array([1, 2])]);
    expect(() => decodeSeries(new ArrayBuffer(4))).toThrow("LNS1");
    expect(() => decodeSeries(whole.slice(0, 20))).toThrow("cut off");
    expect(() => decodeSeries(whole.slice(0, -1))).toThrow("loss of a is cut off");
  });
});
