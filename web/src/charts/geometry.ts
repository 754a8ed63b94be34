/** From rows to lines and bands, for a canvas and for SVG alike. */
import { backward, forward, type Scale } from "./scale";
import type { Floats, Trace } from "./trace";

export interface Box {
  readonly left: number;
  readonly top: number;
  readonly width: number;
  readonly height: number;
}

/** What lines are drawn on: a canvas, a `Path2D`, or the text of an SVG path. */
export interface PathSink {
  moveTo(x: number, y: number): void;
  lineTo(x: number, y: number): void;
  closePath(): void;
}

/** From values to pixels of a box. */
export class Mapping {
  readonly #logX: boolean;
  readonly #logY: boolean;
  readonly #ax: number;
  readonly #bx: number;
  readonly #ay: number;
  readonly #by: number;

  constructor(
    readonly x: Scale,
    readonly y: Scale,
    readonly box: Box,
  ) {
    const left = forward(x.min, x.log);
    const bottom = forward(y.min, y.log);
    this.#logX = x.log;
    this.#logY = y.log;
    this.#ax = box.width / (forward(x.max, x.log) - left);
    this.#bx = box.left - this.#ax * left;
    this.#ay = -box.height / (forward(y.max, y.log) - bottom);
    this.#by = box.top + box.height - this.#ay * bottom;
  }

  /** NaN where a log axis has no place for a value. */
  toX(value: number): number {
    return this.#ax * (this.#logX ? (value > 0 ? Math.log10(value) : Number.NaN) : value) + this.#bx;
  }
  toY(value: number): number {
    return this.#ay * (this.#logY ? (value > 0 ? Math.log10(value) : Number.NaN) : value) + this.#by;
  }
  fromX(pixel: number): number {
    return backward((pixel - this.#bx) / this.#ax, this.#logX);
  }
  fromY(pixel: number): number {
    return backward((pixel - this.#by) / this.#ay, this.#logY);
  }
}

/** The rows of a trace that a mapping shows, with one more on either side, from which lines come in. */
export function rowsInside(trace: Trace, mapping: Mapping): [number, number] {
  const first = Math.max(0, trace.lowerBound(mapping.x.min) - 1);
  return [first, Math.min(trace.length, trace.lowerBound(mapping.x.max) + 2)];
}

/**
 * A line through rows `first` to `end`. Rows that share a pixel column become its first, least, greatest and last
 * value, so that a line of any number of rows costs no more than the width of the chart and loses no extreme.
 */
export function linePath(
  sink: PathSink,
  trace: Trace,
  values: Floats,
  mapping: Mapping,
  first: number,
  end: number,
): void {
  const gap = trace.exact ? Number.POSITIVE_INFINITY : trace.columnWidth * 1.5;
  let pen = false;
  let column = Number.NaN;
  let x = 0;
  let start = 0;
  let least = 0;
  let most = 0;
  let last = 0;
  let before = 0;
  for (let row = first; row < end; row++) {
    const rowX = trace.x[row] ?? Number.NaN;
    const px = mapping.toX(rowX);
    const py = mapping.toY(values[row] ?? Number.NaN);
    if (Number.isNaN(px + py) || (pen && rowX - before > gap && hasBreak(trace, before, rowX))) {
      if (pen && (least < start || most > start)) finishColumn(sink, x, least, most, last);
      pen = false;
      if (Number.isNaN(px + py)) continue;
    }
    before = rowX;
    const pixel = Math.round(px);
    if (pen && pixel === column) {
      if (py < least) least = py;
      if (py > most) most = py;
      last = py;
      continue;
    }
    if (pen) {
      if (least < start || most > start) finishColumn(sink, x, least, most, last);
      sink.lineTo(px, py);
    } else {
      sink.moveTo(px, py);
      pen = true;
    }
    column = pixel;
    x = px;
    start = least = most = last = py;
  }
  if (pen && (least < start || most > start)) finishColumn(sink, x, least, most, last);
}

function finishColumn(sink: PathSink, x: number, least: number, most: number, last: number): void {
  sink.lineTo(x, least);
  sink.lineTo(x, most);
  sink.lineTo(x, last);
}

/** Is there a value between two places that is no number? */
function hasBreak(trace: Trace, from: number, to: number): boolean {
  return trace.marks.some((mark) => mark.kind === "nan" && mark.x >= from && mark.x <= to);
}

/** The area between the least and the greatest value of each row, in pieces where rows are missing. */
export function bandPath(sink: PathSink, trace: Trace, mapping: Mapping, first: number, end: number): void {
  const { low, high } = trace;
  let begin = -1;
  for (let row = first; row <= end; row++) {
    const known = row < end && !Number.isNaN(mapping.toY(high[row] ?? Number.NaN) + mapping.toX(trace.x[row] ?? 0));
    if (known && begin < 0) begin = row;
    if (known || begin < 0) continue;
    for (let at = begin; at < row; at++) {
      const px = mapping.toX(trace.x[at] ?? 0);
      const py = mapping.toY(high[at] ?? 0);
      if (at === begin) sink.moveTo(px, py);
      else sink.lineTo(px, py);
    }
    const floor = mapping.box.top + mapping.box.height;
    for (let at = row - 1; at >= begin; at--) {
      const py = mapping.toY(low[at] ?? 0);
      sink.lineTo(mapping.toX(trace.x[at] ?? 0), Number.isNaN(py) ? floor : py);
    }
    sink.closePath();
    begin = -1;
  }
}

/**
 * The rows of a thinned trace where columns hold a single one, with the columns beside them from least to greatest
 * value. Such a column has no height: the band shows nothing there, and a smoothed line is not where the row is.
 */
export function rowPath(sink: PathSink, trace: Trace, mapping: Mapping, first: number, end: number): void {
  const { low, high } = trace;
  const gap = trace.columnWidth * 1.5;
  const isSingle = (row: number) => row >= first && row < end && low[row] === high[row];
  let pen = false;
  let before = Number.NaN;
  for (let row = first; row < end; row++) {
    const x = trace.x[row] ?? Number.NaN;
    const px = mapping.toX(x);
    const top = mapping.toY(high[row] ?? Number.NaN);
    const bottom = mapping.toY(low[row] ?? Number.NaN);
    const single = isSingle(row);
    const joined = single || isSingle(row - 1);
    if (Number.isNaN(px + top) || !(joined || isSingle(row + 1))) {
      pen = false;
      continue;
    }
    if (pen && (!joined || (x - before > gap && hasBreak(trace, before, x)))) pen = false;
    const start = Number.isNaN(bottom) ? top : bottom;
    if (pen) sink.lineTo(px, start);
    else sink.moveTo(px, start);
    if (!single) sink.lineTo(px, top);
    pen = true;
    before = x;
  }
}

/** A stroke from the line to the extreme of each row that sticks out. */
export function spikePath(sink: PathSink, trace: Trace, mapping: Mapping): void {
  for (const row of trace.spikes) {
    const x = trace.x[row] ?? 0;
    if (x < mapping.x.min || x > mapping.x.max) continue;
    const px = mapping.toX(x);
    const from = mapping.toY(trace.low[row] ?? 0);
    const to = mapping.toY(trace.high[row] ?? 0);
    const line = mapping.toY(trace.line[row] ?? 0);
    const bottom = Number.isNaN(from) ? line : Math.max(from, line);
    if (Number.isNaN(px + bottom + to)) continue;
    sink.moveTo(px, bottom);
    sink.lineTo(px, Math.min(to, line));
  }
}
