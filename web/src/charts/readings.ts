/** What stands at the cursor: the value of each line there. */
import type { Mapping } from "./geometry";
import type { StyledTrace } from "./paint";

export interface Reading {
  readonly styled: StyledTrace;
  readonly row: number;
  /** Where the row stands, which may be beside the cursor. */
  readonly x: number;
  /** As drawn: smoothed where the line is. */
  readonly value: number;
  /** As logged; of a column, the mean. */
  readonly raw: number;
  readonly low: number;
  readonly high: number;
  /** A column that stands for several steps, or a spread across runs. */
  readonly ranges: boolean;
}

/**
 * The row of each line that is closest to `x`, the best first: the least where less is better, else the greatest.
 * A line that has not begun there, or has ended, is left out.
 */
export function readingsAt(styled: readonly StyledTrace[], x: number, reach: number): Reading[] {
  const readings: Reading[] = [];
  for (const line of styled) {
    const { trace } = line;
    const first = trace.x[0];
    const last = trace.x[trace.length - 1];
    if (first === undefined || last === undefined) continue;
    const near = Math.max(reach, trace.columnWidth);
    if (x < first - near || x > last + near) continue;
    const row = trace.nearest(x);
    if (row < 0 || row >= trace.length - trace.borrowed) continue;
    const low = trace.low[row] ?? Number.NaN;
    const high = trace.high[row] ?? Number.NaN;
    readings.push({
      styled: line,
      row,
      x: trace.x[row] ?? x,
      value: trace.line[row] ?? Number.NaN,
      raw: trace.mean[row] ?? Number.NaN,
      low,
      high,
      ranges: high > low,
    });
  }
  const down = styled.some(({ trace }) => trace.goal === "min") ? 1 : -1;
  return readings.sort((a, b) => down * (a.value - b.value));
}

/** The reading whose line is closest to a height in pixels. */
export function nearestReading(readings: readonly Reading[], y: number, mapping: Mapping): Reading | null {
  let nearest: Reading | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const reading of readings) {
    const distance = Math.abs(mapping.toY(reading.value) - y);
    if (distance < least) {
      least = distance;
      nearest = reading;
    }
  }
  return nearest;
}
