import { expect, it } from "vitest";
import { adjusted, brushBetween, brushCodec, moved, passes } from "./parallel";

it("keeps brushes in the address", () => {
  const brushes = new Map([
    ["config.lr", { from: 0.2, to: 0.61234 }],
    ["a:b", { from: 0, to: 0.5 }],
  ]);
  expect(brushCodec.format(brushes)).toBe("config.lr:0.2-0.612;a:b:0-0.5");
  expect(brushCodec.parse(brushCodec.format(brushes))).toEqual(
    new Map([
      ["config.lr", { from: 0.2, to: 0.612 }],
      ["a:b", { from: 0, to: 0.5 }],
    ]),
  );
  expect(brushCodec.parse("nonsense;x:9-2")).toEqual(new Map());
});

it("lets through what lies within every brush that is shown", () => {
  const brushes = new Map([
    ["lr", { from: 0.2, to: 0.6 }],
    ["gone", { from: 0, to: 0.1 }],
  ]);
  expect(passes(new Map([["lr", 0.5]]), brushes)).toBe(true);
  expect(passes(new Map([["lr", 0.7]]), brushes)).toBe(false);
  expect(passes(new Map([["lr", null]]), brushes)).toBe(false);
});

it("moves an axis, not beyond the ends", () => {
  expect(moved(["a", "b", "c"], "a", 1)).toEqual(["b", "a", "c"]);
  expect(moved(["a", "b", "c"], "c", 1)).toEqual(["a", "b", "c"]);
  expect(moved(["a", "b", "c"], "c", -9)).toEqual(["c", "a", "b"]);
});

it("moves one end of a brush, and is none when all is let through", () => {
  expect(adjusted(undefined, "from", 0.1)).toEqual({ from: 0.1, to: 1 });
  expect(adjusted({ from: 0.1, to: 1 }, "from", -0.1)).toBeNull();
  expect(adjusted({ from: 0.5, to: 0.51 }, "from", 0.1)).toEqual({ from: 0.5, to: 0.51 });
});

it("reaches the end of an axis when a hand came close", () => {
  expect(brushBetween(0.6, 0.01)).toEqual({ from: 0, to: 0.6 });
  expect(brushBetween(0.3, 0.99)).toEqual({ from: 0.3, to: 1 });
});
