/** How traces look on a canvas. */
import { bandPath, linePath, type Mapping, rowPath, rowsInside, spikePath } from "./geometry";
import type { Trace } from "./trace";

/** A trace and how it is drawn. */
export interface StyledTrace {
  readonly trace: Trace;
  /** What stands for it in legends: the name of its run or group, and of its metric where there are several. */
  readonly label: string;
  readonly colour: string;
  /** Held-out figures are dashed. */
  readonly dashed: boolean;
  /** The band is a spread across runs, and not the extremes of a column. */
  readonly spread: boolean;
  /** Of a run that those of the chart are compared with. */
  readonly isBaseline?: boolean;
}

/** Colours and fonts of the page, as a canvas needs them. */
export interface Ink {
  readonly panel: string;
  readonly line: string;
  readonly ghost: string;
  readonly faint: string;
  readonly dim: string;
  readonly ink: string;
  readonly warn: string;
  readonly bad: string;
  readonly font: string;
}

export const LINE_WIDTH = 1.7; // CSS pixels, as all that follow
export const DASH: readonly number[] = [5, 3];
export const FAINT = 0.55; // what a resume replaced, and what a fork inherits
export const FAINT_WIDTH = 1.2;
const SUPERSEDED_DASH: readonly number[] = [1.5, 3];
const ROWS_BEYOND = 3;
const MANY = 12; // beyond so many traces lines are thinner and bands fainter
export const MOST_BANDS = 24; // beyond so many traces their bands are one fog; what sticks out has its strokes
const DENSE = 2; // pixels between rows below which a line is painted as hairlines, in a quarter of the time
const WIDEST_OF_HAIRLINES = 2; // pixels
const FEW_POINTS = 26; // pixels between rows from which each has a dot
const SOLID: readonly number[] = [];

export function lineWidth(traces: number): number {
  return traces > MANY ? 1 : LINE_WIDTH; // a hairline is painted several times faster than any wider one
}

export function bandOpacity(traces: number, spread: boolean): number {
  const opacity = spread ? 0.18 : 0.14;
  return traces > MANY ? Math.max(0.03, (opacity * MANY) / traces) : opacity;
}

/**
 * One trace: its band, the strokes of what sticks out of it, the rows behind a smoothed line, and the line.
 * `from`, `to`: only what lies between these x, with some rows beyond.
 */
export function paintTrace(
  context: CanvasRenderingContext2D,
  styled: StyledTrace,
  mapping: Mapping,
  ratio: number,
  traces: number,
  from = Number.NEGATIVE_INFINITY,
  to = Number.POSITIVE_INFINITY,
): void {
  const { trace, colour } = styled;
  const [begin, last] = rowsInside(trace, mapping);
  const first = Math.max(begin, trace.lowerBound(from) - ROWS_BEYOND);
  const end = Math.min(last, trace.lowerBound(to) + ROWS_BEYOND);
  if (end <= first) return;
  context.strokeStyle = colour;
  context.fillStyle = colour;
  context.lineJoin = "round";
  context.setLineDash(SOLID as number[]);
  if (traces <= MOST_BANDS) paintBand(context, styled, mapping, ratio, traces, first, end);
  if (!styled.spread && trace.spikes.length) {
    context.globalAlpha = 0.5;
    context.lineWidth = Math.max(1, ratio);
    context.beginPath();
    spikePath(context, trace, mapping);
    context.stroke();
  }
  context.globalAlpha = trace.grows ? 1 : FAINT;
  paintLine(context, styled, mapping, ratio, trace.grows ? lineWidth(traces) : FAINT_WIDTH, first, end);
  context.globalAlpha = 1;
}

/** How far the rows of a column go; of a smoothed line where columns are single rows, those rows. */
function paintBand(
  context: CanvasRenderingContext2D,
  { trace, spread }: StyledTrace,
  mapping: Mapping,
  ratio: number,
  traces: number,
  first: number,
  end: number,
): void {
  if (trace.superseded) return;
  const thinned = trace.low !== trace.mean;
  if (thinned) {
    context.globalAlpha = bandOpacity(traces, spread);
    context.beginPath();
    bandPath(context, trace, mapping, first, end);
    context.fill();
  }
  if (trace.smooth === null) return;
  context.globalAlpha = traces > MANY ? 0.12 : 0.28;
  context.lineWidth = ratio;
  context.beginPath();
  if (thinned) rowPath(context, trace, mapping, first, end);
  else linePath(context, trace, trace.mean, mapping, first, end);
  context.stroke();
}

function paintLine(
  context: CanvasRenderingContext2D,
  { trace, dashed }: StyledTrace,
  mapping: Mapping,
  ratio: number,
  width: number,
  first: number,
  end: number,
): void {
  const rows = end - first - 1;
  const across = Math.abs(mapping.toX(trace.x[end - 1] ?? 0) - mapping.toX(trace.x[first] ?? 0));
  const wide = width * ratio;
  const path = () => {
    context.beginPath();
    linePath(context, trace, trace.line, mapping, first, end);
    context.stroke();
  };
  if (!dashed && trace.grows && wide > 1 && wide <= WIDEST_OF_HAIRLINES && across < rows * DENSE) {
    const beside = (wide - 1) / 2;
    context.lineWidth = 1;
    for (const [x, y] of [
      [beside, 0],
      [-beside, 0],
      [0, beside],
      [0, -beside],
    ] as const) {
      context.translate(x, y);
      path();
      context.translate(-x, -y);
    }
  } else {
    context.lineWidth = wide;
    context.setLineDash(scaled(trace.superseded ? SUPERSEDED_DASH : dashed ? DASH : SOLID, ratio));
    path();
    context.setLineDash(SOLID as number[]);
  }
  if (rows > 0 && across / ratio / rows < FEW_POINTS) return;
  const radius = (width + 0.2) * ratio;
  context.beginPath();
  for (let row = first; row < end; row++) {
    const x = mapping.toX(trace.x[row] ?? Number.NaN);
    const y = mapping.toY(trace.line[row] ?? Number.NaN);
    if (Number.isNaN(x + y)) continue;
    context.moveTo(x + radius, y);
    context.arc(x, y, radius, 0, 2 * Math.PI);
  }
  context.fill();
}

const scaledDashes = new Map<string, number[]>();

/** A dash pattern in device pixels; kept, so that a frame makes no garbage. */
function scaled(dash: readonly number[], ratio: number): number[] {
  const name = `${dash.join()}*${ratio}`;
  let known = scaledDashes.get(name);
  if (!known) {
    known = dash.map((length) => length * ratio);
    scaledDashes.set(name, known);
  }
  return known;
}

/**
 * One trace above the others: thicker, on a halo of the panel's colour. Of more than `MOST_BANDS` traces it is the one
 * that has its band.
 */
export function paintHighlight(
  context: CanvasRenderingContext2D,
  styled: StyledTrace,
  mapping: Mapping,
  ratio: number,
  ink: Ink,
  traces: number,
): void {
  const [first, end] = rowsInside(styled.trace, mapping);
  context.strokeStyle = styled.colour;
  context.fillStyle = styled.colour;
  if (traces > MOST_BANDS) paintBand(context, styled, mapping, ratio, 1, first, end);
  context.globalAlpha = 0.85;
  context.strokeStyle = ink.panel;
  context.fillStyle = ink.panel;
  paintLine(context, { ...styled, dashed: false }, mapping, ratio, LINE_WIDTH + 3, first, end);
  context.globalAlpha = 1;
  context.strokeStyle = styled.colour;
  context.fillStyle = styled.colour;
  paintLine(context, styled, mapping, ratio, LINE_WIDTH + 0.8, first, end);
}

/** At the edges of a clipped axis: where a line goes beyond them. */
export function paintClipped(
  context: CanvasRenderingContext2D,
  { trace, colour }: StyledTrace,
  mapping: Mapping,
  ratio: number,
): void {
  const { top, height } = mapping.box;
  const [first, end] = rowsInside(trace, mapping);
  const length = 4 * ratio;
  context.fillStyle = colour;
  let painted = Number.NaN; // pixel column
  for (let row = first; row < end; row++) {
    const above = (trace.high[row] ?? 0) > mapping.y.max;
    if (!above && !((trace.low[row] ?? 0) < mapping.y.min)) continue;
    const x = Math.round(mapping.toX(trace.x[row] ?? 0));
    if (x === painted) continue;
    painted = x;
    context.fillRect(x - ratio / 2, above ? top : top + height - length, ratio, length);
  }
}

/** A ring around a point, such as the best. */
export function paintRing(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  colour: string,
  ratio: number,
  ink: Ink,
): void {
  context.beginPath();
  context.arc(x, y, 3.4 * ratio, 0, 2 * Math.PI);
  context.fillStyle = ink.panel;
  context.strokeStyle = colour;
  context.lineWidth = 2 * ratio;
  context.fill();
  context.stroke();
}

/** A warning: a triangle at the line for what sticks out or stalls, a cross for what is no number. */
export function paintMark(
  context: CanvasRenderingContext2D,
  kind: Trace["marks"][number]["kind"],
  x: number,
  y: number,
  ratio: number,
  ink: Ink,
): void {
  const size = 4.2 * ratio;
  context.lineWidth = 1.5 * ratio;
  context.strokeStyle = ink.panel;
  context.beginPath();
  if (kind === "nan") {
    context.moveTo(x - size, y - size);
    context.lineTo(x + size, y + size);
    context.moveTo(x - size, y + size);
    context.lineTo(x + size, y - size);
    context.lineWidth = 4.5 * ratio;
    context.stroke();
    context.strokeStyle = ink.bad;
    context.lineWidth = 2 * ratio;
    context.stroke();
    return;
  }
  context.moveTo(x, y - size * 1.1);
  context.lineTo(x + size * 1.05, y + size * 0.8);
  context.lineTo(x - size * 1.05, y + size * 0.8);
  context.closePath();
  context.fillStyle = ink.warn;
  context.stroke();
  context.fill();
}
