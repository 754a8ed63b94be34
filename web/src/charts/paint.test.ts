import { expect, test } from "vitest";
import { Mapping } from "./geometry";
import { LINE_WIDTH, MOST_BANDS, paintHighlight, paintTrace, type StyledTrace } from "./paint";
import { madeTrace } from "./trace";

const INK = Object.fromEntries(
  ["panel", "line", "ghost", "faint", "dim", "ink", "warn", "bad", "font"].map((name) => [name, name]),
) as unknown as Parameters<typeof paintHighlight>[4];
const MAPPING = new Mapping(
  { min: 0, max: 3, log: false, kind: "count" },
  { min: 0, max: 10, log: false, kind: "number" },
  { left: 0, top: 0, width: 4, height: 100 },
);

function styled(): StyledTrace {
  const mean = Float64Array.from([5, 4, 3, 2]);
  const columns = {
    x: Float64Array.from([0, 1, 2, 3]),
    low: mean.map((v) => v - 1),
    high: mean.map((v) => v + 1),
    mean,
  };
  const trace = madeTrace({ run: "a", key: "loss", goal: "min" }, { from: 0, to: 4, points: 4 }, columns);
  return { trace, label: "a", colour: "#123456", dashed: false, spread: false };
}

/** The colours of the areas that something filled on a canvas, in order. */
function filled(paint: (context: CanvasRenderingContext2D) => void): string[] {
  const areas: string[] = [];
  const context = new Proxy({ fillStyle: "" } as Record<string, unknown>, {
    get: (target, name: string) => {
      if (name === "fill") return () => areas.push(String(target.fillStyle));
      return name in target ? target[name] : () => {};
    },
  });
  paint(context as unknown as CanvasRenderingContext2D);
  return areas;
}

test("a trace has its band as long as there are few", () => {
  const painted = (traces: number) => filled((context) => paintTrace(context, styled(), MAPPING, 1, traces));
  expect(painted(MOST_BANDS)).toEqual(["#123456"]);
  expect(painted(MOST_BANDS + 1)).toEqual([]);
});

test("of many, the one that is pointed at has its band; of few it has it already", () => {
  const painted = (traces: number) => filled((context) => paintHighlight(context, styled(), MAPPING, 1, INK, traces));
  expect(painted(MOST_BANDS + 1)).toEqual(["#123456"]);
  expect(painted(2)).toEqual([]);
});

test("a line with a row in each pixel is painted as hairlines beside each other, any other in its width", () => {
  const widths = (mapping: Mapping, ratio = 1, dashed = false) => {
    const strokes: number[] = [];
    const context = new Proxy({ lineWidth: 0 } as Record<string, unknown>, {
      get: (target, name: string) => {
        if (name === "stroke") return () => strokes.push(Number(target.lineWidth));
        return name in target ? target[name] : () => {};
      },
    });
    const one = { ...styled(), spread: true, dashed };
    paintTrace(context as unknown as CanvasRenderingContext2D, one, mapping, ratio, 1);
    return strokes;
  };
  const roomy = new Mapping(MAPPING.x, MAPPING.y, { left: 0, top: 0, width: 400, height: 100 });
  expect(widths(MAPPING)).toEqual([1, 1, 1, 1]);
  expect(widths(roomy)).toEqual([LINE_WIDTH]);
  expect(widths(MAPPING, 1, true)).toEqual([LINE_WIDTH]);
  expect(widths(MAPPING, 2)).toEqual([2 * LINE_WIDTH]);
});
