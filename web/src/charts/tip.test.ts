import { describe, expect, test } from "vitest";
import { Mapping } from "./geometry";
import type { StyledTrace } from "./paint";
import { nearestReading, readingsAt } from "./readings";
import { type TipPlace, tipOf } from "./tip";
import { madeTrace } from "./trace";

const GRID = { from: 0, to: 100, points: 100 };
const scale = (min: number, max: number) => ({ min, max, log: false, kind: "number" as const });
const mapping = new Mapping(scale(0, 100), scale(0, 10), { left: 0, top: 0, width: 100, height: 100 });

function line(run: string, y: (x: number) => number, { every = 1, room = 0, last = 100 } = {}): StyledTrace {
  const x = Float64Array.from({ length: Math.floor(last / every) + 1 }, (_, at) => at * every);
  const mean = x.map(y);
  const columns = { x, mean, low: mean.map((v) => v - room), high: mean.map((v) => v + room) };
  const trace = madeTrace({ run, key: "loss", goal: "min" }, GRID, columns);
  return { trace, label: run, colour: "#000", dashed: false, spread: room > 0 };
}

function placeOf(lines: StyledTrace[], x: number, changes: Partial<TipPlace> = {}): TipPlace {
  return { x, axis: "step", mapping, readings: readingsAt(lines, x, 6), exact: null, close: null, lines, ...changes };
}

describe("what stands at the cursor", () => {
  test("the best first, by the way that is better", () => {
    const lines = [line("a", () => 5), line("b", () => 3), line("c", () => 4)];
    expect(tipOf(placeOf(lines, 50)).rows.map(({ label, value }) => `${label} ${value}`)).toEqual([
      "b 3",
      "c 4",
      "a 5",
    ]);
  });

  test("the line at the pointer is told apart", () => {
    const lines = [line("a", () => 5), line("b", () => 3)];
    const readings = readingsAt(lines, 50, 6);
    const close = nearestReading(readings, mapping.toY(4.8), mapping);
    expect(tipOf(placeOf(lines, 50, { close })).rows.map(({ label, strong }) => [label, strong])).toEqual([
      ["b", false],
      ["a", true],
    ]);
  });

  test("a run that ended before is left out, one with few rows says where its own stands", () => {
    const lines = [line("short", () => 1, { last: 20 }), line("rare", () => 2, { every: 25 })];
    expect(tipOf(placeOf(lines, 60)).rows).toMatchObject([{ label: "rare", note: "at 50" }]);
  });

  test("how far a band goes", () => {
    expect(tipOf(placeOf([line("a", () => 5, { room: 1 })], 50)).rows[0]?.note).toBe("4 – 6");
  });

  test("exact rows take the place of a column, whose range stays", () => {
    const columns = [line("a", () => 5, { room: 1 })];
    const exact = readingsAt([line("a", () => 4.25)], 51, 6);
    const tip = tipOf(placeOf(columns, 50, { exact }));
    expect(tip.title).toBe("step 51");
    expect(tip.rows).toMatchObject([{ value: "4.25", note: "4 – 6" }]);
  });

  test("warnings at the place, and how many lines are not named", () => {
    const lines = Array.from({ length: 20 }, (_, at) => line(`r${at}`, () => at / 10));
    lines[3]?.trace.marks.push({ x: 52, kind: "spike", text: "spike at 52" });
    const tip = tipOf(placeOf(lines, 50));
    expect(tip.rows).toHaveLength(14);
    expect(tip.notes).toEqual([
      { text: "▲ r3: spike at 52", warning: true },
      { text: "and 6 more", warning: false },
    ]);
  });
});
