/** Which stretch of the y axis a chart shows. */
import type { Trace } from "./trace";

export interface Range {
  readonly min: number;
  readonly max: number;
}

const ROOM = 0.05; // of the height, above and below
const CLIPPED = 100; // clipping leaves out one row in so many at either end

/** How far traces go on the x axis; null without any row. */
export function xRange(traces: readonly Trace[], log = false): Range | null {
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (const trace of traces) {
    if (!trace.length) continue;
    const half = trace.columnWidth / 2; // to the edges of the first column and the last
    let first = trace.x[0] ?? 0;
    if (log && first - half <= 0) first = trace.x[trace.lowerBound(Number.MIN_VALUE)] ?? 0;
    else first -= half;
    const last = (trace.x[trace.length - 1] ?? 0) + half;
    if (log && !(first > 0)) continue;
    min = Math.min(min, first);
    max = Math.max(max, last);
  }
  if (min > max) return null;
  return min === max ? { min: log ? min / 2 : min - 1, max: log ? max * 2 : max + 1 } : { min, max };
}

/**
 * The least and the greatest value of traces between two x, with some room.
 *
 * - `clip`: leave out the one row in a hundred that is farthest off at either end.
 * - `log`: only what is above 0 counts.
 */
export function yRange(
  traces: readonly Trace[],
  x: Range,
  { clip = false, log = false }: { clip?: boolean; log?: boolean } = {},
): Range | null {
  const extent = clip ? (clippedExtent(traces, x, log) ?? fullExtent(traces, x, log)) : fullExtent(traces, x, log);
  return extent && withRoom(extent, log);
}

function fullExtent(traces: readonly Trace[], x: Range, log: boolean): Range | null {
  let min = Number.POSITIVE_INFINITY;
  let max = Number.NEGATIVE_INFINITY;
  for (const trace of traces) {
    const { low, high, mean } = trace;
    const end = endOf(trace, x);
    for (let at = beginOf(trace, x); at < end; at++) {
      const top = high[at] ?? Number.NaN;
      let bottom = low[at] ?? Number.NaN;
      if (log && bottom <= 0) bottom = mean[at] ?? Number.NaN;
      if (top > max) max = top;
      if (bottom < min && !(log && bottom <= 0)) min = bottom;
    }
  }
  return min <= max ? { min, max } : null;
}

function clippedExtent(traces: readonly Trace[], x: Range, log: boolean): Range | null {
  const lows: number[] = [];
  const highs: number[] = [];
  for (const trace of traces) {
    const end = endOf(trace, x);
    for (let at = beginOf(trace, x); at < end; at++) {
      const bottom = trace.low[at] ?? Number.NaN;
      const top = trace.high[at] ?? Number.NaN;
      if (Number.isFinite(top) && !(log && bottom <= 0)) {
        lows.push(bottom);
        highs.push(top);
      }
    }
  }
  if (lows.length <= 4) return null;
  const cut = Math.max(1, Math.floor(lows.length / CLIPPED));
  const min = Float64Array.from(lows).sort()[cut] ?? 0;
  const max = Float64Array.from(highs).sort()[highs.length - 1 - cut] ?? 0;
  return max > min ? { min, max } : null;
}

/** The row before the first inside, so that a line that enters from the side is counted where it enters. */
function beginOf(trace: Trace, x: Range): number {
  return trace.lowerBound(x.min - trace.columnWidth / 2);
}

function endOf(trace: Trace, x: Range): number {
  let end = trace.lowerBound(x.max + trace.columnWidth / 2);
  while (end < trace.length && (trace.x[end] ?? 0) <= x.max) end++;
  return end;
}

/** A stretch with some room at either end; a single value gets a stretch around it. */
export function withRoom({ min, max }: Range, log = false): Range {
  if (log) {
    const room = max > min ? (max / min) ** ROOM : 1.5;
    return { min: min / room, max: max * room };
  }
  if (min === max) {
    const around = Math.abs(min) * 0.1 || 1;
    return { min: min - around, max: max + around };
  }
  const room = (max - min) * ROOM;
  // A figure that is never negative (a norm, a rate) does not get an axis below 0.
  return { min: min >= 0 && min - room < 0 ? Math.min(0, min) : min - room, max: max + room };
}
