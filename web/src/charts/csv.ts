/** The rows in sight of a chart as CSV: one line for each, with every digit. */
import type { Axis } from "../data/types";
import type { StyledTrace } from "./paint";
import type { Range } from "./range";

/**
 * Columns: run, metric, the axis, value (of a column that stands for many steps: the mean), low and high, and the
 * smoothed value where the line is smoothed.
 */
export function csvOf(styled: readonly StyledTrace[], axis: Axis, x: Range): string {
  const lines = [["run", "metric", axis.replace(" ", "_"), "value", "low", "high", "smoothed"].join(",")];
  for (const { trace } of styled) {
    const name = `${field(trace.run)},${field(trace.key)}`;
    for (let row = trace.lowerBound(x.min); row < trace.length - trace.borrowed; row++) {
      const rowX = trace.x[row] ?? Number.NaN;
      if (rowX > x.max) break;
      const figures = [trace.mean[row], trace.low[row], trace.high[row], trace.smooth?.[row]];
      lines.push([name, rowX, ...figures.map(figure)].join(","));
    }
  }
  return `${lines.join("\n")}\n`;
}

function figure(value: number | undefined): string {
  if (value === undefined) return "";
  return Number.isNaN(value) ? "nan" : String(value);
}

/** Quoted where it has to be; a text that a spreadsheet would take for a formula gets an apostrophe. */
export function field(text: string): string {
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\n\r]/.test(safe) ? `"${safe.replace(/"/g, '""')}"` : safe;
}
