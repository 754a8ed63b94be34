// @vitest-environment happy-dom
import { describe, expect, test } from "vitest";
import { csvOf } from "./csv";
import type { Picture } from "./figure";
import type { StyledTrace } from "./paint";
import { svgOf } from "./svg";
import { madeTrace } from "./trace";

const GRID = { from: 0, to: 4, points: 4 };
function styled(run: string, y: number[], changes: Partial<StyledTrace> = {}): StyledTrace {
  const mean = Float64Array.from(y);
  const columns = { x: Float64Array.from(y.keys()), low: mean.map((v) => v - 1), high: mean.map((v) => v + 1), mean };
  const trace = madeTrace({ run, key: "loss", goal: "min" }, GRID, columns);
  return { trace, label: run, colour: "#123456", dashed: false, spread: false, ...changes };
}
const INK = {
  panel: "#fff",
  line: "#eee",
  ghost: "#aaa",
  faint: "#888",
  dim: "#666",
  ink: "#111",
  warn: "#c80",
  bad: "#c00",
  font: "10px sans-serif",
};
const picture = (lines: StyledTrace[]): Picture => ({
  title: "loss",
  axis: "step",
  x: { min: 0, max: 3, log: false, kind: "count" },
  y: { min: 0, max: 10, log: false, kind: "number" },
  styled: lines,
  rings: [{ x: 2, y: 3, colour: "#123456" }],
  ink: INK,
});

describe("SVG", () => {
  test("has the lines, bands, rings, ticks and legend of the chart", () => {
    const document = new DOMParser().parseFromString(
      svgOf(picture([styled("a", [1, 2, 3, 4]), styled("b", [4, 3, 2, 1], { dashed: true })])),
      "image/svg+xml",
    );
    expect(document.querySelector("parsererror")).toBeNull();
    expect(document.querySelectorAll("circle")).toHaveLength(1);
    expect([...document.querySelectorAll("path[stroke-dasharray]")].length).toBeGreaterThan(0);
    const texts = [...document.querySelectorAll("text")].map((text) => text.textContent);
    expect(texts).toEqual(expect.arrayContaining(["loss", "step", "a", "b", "10", "0"]));
  });

  test("text from a run is text", () => {
    const svg = svgOf(picture([styled('<script>alert("x")</script>&\u0007', [1, 2])]));
    expect(svg).not.toContain("<script>");
    expect(svg).toContain("&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&amp;</text>");
  });
});

describe("CSV", () => {
  test("has the rows in sight with every digit", () => {
    const text = csvOf([styled("a", [0.1 + 0.2, 2, 3, 4])], "wall time", { min: 0, max: 1 });
    expect(text).toBe(
      "run,metric,wall_time,value,low,high,smoothed\na,loss,0,0.30000000000000004,-0.7,1.3,\na,loss,1,2,1,3,\n",
    );
  });
  test("names with commas, quotes and formulas are harmless", () => {
    const text = csvOf([styled('=cmd,"x"', [1])], "step", { min: 0, max: 1 });
    expect(text.split("\n")[1]).toBe('"\'=cmd,""x""",loss,0,1,0,2,');
  });
});
