import { expect, it } from "vitest";
import { linearTicks, scaleFor } from "./scale";

it("is logarithmic where the values span a decade", () => {
  expect(scaleFor([1e-4, 1e-3]).kind).toBe("log");
  expect(scaleFor([1e-4, 9e-4]).kind).toBe("linear");
  expect(scaleFor([0, 100]).kind).toBe("linear");
  expect(scaleFor([1, 1000], false).kind).toBe("linear");
});

it("has categories for texts, numbers among them in order", () => {
  const scale = scaleFor(["muon", "adamw", true, "adamw"]);
  expect(scale.kind).toBe("category");
  expect(scale.ticks(8).map((tick) => tick.text)).toEqual(["adamw", "muon", "yes"]);
  expect(scale.position("adamw")).toBeLessThan(scale.position("muon") ?? 0);
  expect(scale.invert(0.1)).toBe("adamw");
});

it("has no place for what is missing or cannot be drawn", () => {
  const scale = scaleFor([1, 100]);
  expect(scale.position(null)).toBeNull();
  expect(scale.position(-1)).toBeNull();
  expect(scale.position(Number.NaN)).toBeNull();
});

it("gives back the value it was given", () => {
  const scale = scaleFor([1e-4, 1e-1]);
  expect(scale.invert(scale.position(3e-3) ?? 0)).toBeCloseTo(3e-3, 9);
});

it("has few round ticks", () => {
  expect(linearTicks(0.3, 9.7, 5)).toEqual([2, 4, 6, 8]);
  const texts = scaleFor([1e-4, 1.1e-4, 1e-1]).ticks(5);
  expect(texts.map((tick) => tick.text)).toEqual(["0.0001", "0.001", "0.01", "0.1"]);
  expect(scaleFor([3, 3]).ticks(4).length).toBeGreaterThan(0);
  expect(scaleFor([1e-30, 1e30]).ticks(5).length).toBeLessThanOrEqual(6);
});

it("labels the settings themselves where they are few", () => {
  expect(
    scaleFor([16, 32, 128])
      .ticks(6)
      .map((tick) => tick.text),
  ).toEqual(["16", "32", "128"]);
  expect(
    scaleFor([0, 0.1])
      .ticks(5)
      .map((tick) => tick.text),
  ).toEqual(["0", "0.1"]);
});
