import { describe, expect, test } from "vitest";
import {
  age,
  asNumber,
  compact,
  count,
  duration,
  exact,
  grouped,
  machineText,
  metricText,
  number,
  plural,
  size,
} from "./words";

describe("numbers read as those of the terminal board", () => {
  test.each([
    [3.14259, "3.143"],
    [0.1, "0.1"],
    [0, "0"],
    [36.5, "36.5"],
    [1234.4, "1,234"],
    [123456, "123,456"],
    [0.00001234, "1.234e-5"],
    [1e-5, "1e-5"],
    [2.5e9, "2.5e9"],
    [-0.5, "-0.5"],
    ["nan", "NaN"],
    ["inf", "∞"],
    ["-inf", "-∞"],
    [null, "–"],
  ] as const)("%s", (value, text) => expect(number(value)).toBe(text));

  test("a count in few characters", () => {
    expect(compact(870)).toBe("870");
    expect(compact(9999)).toBe("9,999");
    expect(compact(870_000)).toBe("870k");
    expect(compact(1_250_000)).toBe("1.25M");
    expect(count(12400)).toBe("12,400");
    expect(plural(1, "run")).toBe("1 run");
    expect(plural(2000, "run")).toBe("2,000 runs");
    expect(grouped(-0.001, 2)).toBe("0.00");
    expect(exact(0.1 + 0.2)).toBe("0.30000000000000004");
  });

  test("times and sizes", () => {
    expect(duration(4.21)).toBe("4.2 s");
    expect(duration(192)).toBe("3 m 12 s");
    expect(duration(100_800)).toBe("1 d 4 h");
    expect(duration(-1)).toBe("–");
    expect(age(0.4)).toBe("now");
    expect(age(7300)).toBe("2 h");
    expect(size(12_400_000)).toBe("12.4 MB");
    expect(size(999)).toBe("999 B");
  });

  test("figures that JSON has no numbers for", () => {
    expect(asNumber("nan")).toBeNaN();
    expect(asNumber(null)).toBeNaN();
    expect(asNumber("-inf")).toBe(Number.NEGATIVE_INFINITY);
  });
});

test("figures of the machine have their units", () => {
  expect(machineText("sys/memory/used", 2e9)).toBe("2.0 GB");
  expect(machineText("sys/net/recv_bps", 1500)).toBe("1.5 kB/s");
  expect(machineText("sys/cpu/percent", 51.234)).toBe("51.2 %");
  expect(machineText("sys/gpu0/temperature", 61)).toBe("61 °C");
  expect(machineText("sys/gpu0/power", null)).toBe("–");
});

test("a metric's value has its unit where that is known", () => {
  expect(metricText("sys/process/rss", 476_303_360)).toBe("476 MB");
  expect(metricText("loss", 3.29871)).toBe("3.299");
  expect(metricText("loss", undefined)).toBe("–");
});
