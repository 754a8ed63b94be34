import { expect, it } from "vitest";
import { numbersOf, rgbAt, scaleOf, shareOf } from "./colour-scale";

const lightness = ([r, g, b]: readonly [number, number, number]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;

it("orders numbers by lightness alone, away from the ground of either theme", () => {
  for (const [theme, sign] of [
    ["light", -1],
    ["dark", 1],
  ] as const) {
    const steps = Array.from({ length: 101 }, (_, at) => lightness(rgbAt(at / 100, theme)));
    for (let at = 1; at < steps.length; at++)
      expect(sign * ((steps[at] ?? 0) - (steps[at - 1] ?? 0))).toBeGreaterThan(0);
  }
});

it("is logarithmic by itself where positive numbers span decades", () => {
  expect(scaleOf([[1e-6, 1e-2]], "auto")).toEqual({ low: 1e-6, high: 1e-2, log: true });
  expect(scaleOf([[0, 1e-6, 1e-2]], "auto").log).toBe(true);
  expect(scaleOf([[0.5, 2]], "auto").log).toBe(false);
  expect(scaleOf([[-1, 1e-6, 5]], "auto").log).toBe(false);
  expect(scaleOf([[1, 1e6]], "linear").log).toBe(false);
  expect(scaleOf([[-1, -2]], "log")).toEqual({ low: -2, high: -1, log: false });
});

it("puts every number on the scale, and none nowhere", () => {
  const log = scaleOf([[1e-4, 1]], "log");
  expect(shareOf(log, 1e-2)).toBeCloseTo(0.5);
  expect(shareOf(log, 0)).toBe(0);
  const linear = scaleOf([[2, 4, Number.NaN, Number.POSITIVE_INFINITY]], "linear");
  expect([2, 3, 4, 9, -9, Number.POSITIVE_INFINITY].map((value) => shareOf(linear, value))).toEqual([
    0, 0.5, 1, 1, 0, 1,
  ]);
  expect(shareOf(linear, Number.NaN)).toBeNaN();
  expect(shareOf(scaleOf([[3, 3]], "auto"), 3)).toBe(0.5);
});

it("reads figures of the server", () => {
  expect(numbersOf([[1, null, "nan", "inf", "-inf"]])).toEqual([
    [1, Number.NaN, Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  ]);
});
