import { describe, expect, test } from "vitest";
import { roundNumbers, type Scale, share, ticks, tickTexts, valueAt, xText } from "./scale";

const scale = (min: number, max: number, changes: Partial<Scale> = {}): Scale => ({
  min,
  max,
  log: false,
  kind: "number",
  ...changes,
});
const texts = (of: Scale, amount = 4) => ticks(of, amount).map((tick) => tick.text);

describe("ticks stand at round numbers", () => {
  test("linear", () => {
    expect(roundNumbers(0, 1, 4)).toEqual([0, 0.5, 1]);
    expect(roundNumbers(0.1, 0.5, 4)).toEqual([0.1, 0.2, 0.3, 0.4, 0.5]);
    expect(texts(scale(3.1, 6.9))).toEqual(["4", "5", "6"]);
    expect(texts(scale(-0.02, 0.02))).toEqual(["-0.02", "-0.01", "0", "0.01", "0.02"]);
    expect(texts(scale(1, 1))).toEqual([]);
  });
  test("counts in thousands and millions", () => {
    expect(texts(scale(0, 6000, { kind: "count" }))).toEqual(["0", "2k", "4k", "6k"]);
    expect(texts(scale(0, 2_000_000, { kind: "count" }))).toEqual(["0", "500k", "1M", "1.5M", "2M"]);
    expect(texts(scale(0, 300, { kind: "count" }), 3)).toEqual(["0", "100", "200", "300"]);
  });
  test("numbers too long for the axis are shortened", () => {
    expect(texts(scale(0, 600_000_000))).toEqual(["0", "200M", "400M", "600M"]);
    expect(texts(scale(55.7e9, 56e9), 3)).toEqual(["55.7G", "55.8G", "55.9G", "56G"]);
    expect(texts(scale(0, 30_000), 3)).toEqual(["0", "10,000", "20,000", "30,000"]);
    expect(tickTexts([400_000])).toEqual(["400k"]); // alone too
  });
  test("numbers that differ late keep the digits that tell them apart", () => {
    const words = tickTexts([1.0000001, 1.0000002, 1.0000003]);
    expect(new Set(words).size).toBe(3);
  });
  test("logarithmic: decades, then 1 2 5, then round numbers", () => {
    expect(texts(scale(1e-4, 10, { log: true }), 6)).toEqual(["1e-4", "0.001", "0.01", "0.1", "1", "10"]);
    expect(texts(scale(2, 40, { log: true }), 5)).toEqual(["2", "5", "10", "20"]);
    expect(texts(scale(3.1, 3.9, { log: true }), 4)).toContain("3.4");
    expect(texts(scale(1, 1e6, { log: true, kind: "count" }), 8)).toContain("100k");
  });
  test("times in their unit, clocks at whole minutes", () => {
    expect(texts(scale(0, 7200, { kind: "time" }))).toEqual(["0", "0.5 h", "1.0 h", "1.5 h", "2.0 h"]);
    const noon = new Date(2026, 2, 4, 12, 0, 0).getTime() / 1000;
    expect(texts(scale(noon, noon + 1800, { kind: "clock" }), 3)).toEqual(["12:00", "12:10", "12:20", "12:30"]);
  });
});

test("a value and its share of the axis are each other's inverse", () => {
  for (const axis of [scale(2, 8), scale(1e-3, 10, { log: true })]) {
    expect(valueAt(axis, share(axis, 5))).toBeCloseTo(5, 9);
    expect(share(axis, axis.min)).toBe(0);
    expect(share(axis, axis.max)).toBe(1);
  }
});

test("a place on the x axis as one says it", () => {
  expect(xText(3720.4, "step")).toBe("3,720");
  expect(xText(12_400_000, "tokens")).toBe("12.4M");
  expect(xText(1.234567, "epoch")).toBe("1.235");
  expect(xText(192, "relative time")).toBe("3 m 12 s");
});
