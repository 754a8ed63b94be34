/** A chart as a picture of its own, with title and legend: where everything stands, for SVG and PNG alike. */
import type { Axis } from "../data/types";
import { type Box, Mapping } from "./geometry";
import type { Ink, StyledTrace } from "./paint";
import type { PlotContent } from "./plot";
import type { Range } from "./range";
import { type Scale, type Tick, ticks } from "./scale";
import { namedLines } from "./styling";

/** What a picture shows: what is in sight on the screen. */
export interface Picture {
  readonly title: string;
  readonly axis: Axis;
  readonly x: Scale;
  readonly y: Scale;
  readonly styled: readonly StyledTrace[];
  readonly rings: PlotContent["rings"];
  readonly ink: Ink;
}

export interface Figure {
  readonly width: number;
  readonly height: number;
  readonly mapping: Mapping;
  readonly xTicks: readonly Tick[];
  readonly yTicks: readonly Tick[];
  readonly texts: readonly FigureText[];
  readonly swatches: readonly { readonly x: number; readonly y: number; readonly styled: StyledTrace }[];
}

export interface FigureText {
  readonly x: number;
  readonly y: number;
  readonly text: string;
  readonly size: number;
  readonly anchor: "start" | "middle" | "end";
  readonly tone: "ink" | "faint";
  readonly bold: boolean;
}

export const SWATCH = 16; // pixels
const MOST_LEGEND = 24;
const LINE = 18;
const LETTER = 6.3; // pixels of a letter, on average

/** Lays out a picture of a size in pixels. */
export function layOut(picture: Picture, width = 960, height = 520): Figure {
  const legend = legendRows(namedLines(picture.styled), width - 48);
  const box: Box = { left: 58, top: 44, width: width - 58 - 22, height: height - 44 - 46 - legend.length * LINE };
  const mapping = new Mapping(picture.x, picture.y, box);
  const xTicks = ticks(picture.x, Math.round(box.width / 110));
  const yTicks = ticks(picture.y, Math.round(box.height / 56));
  const bottom = box.top + box.height;
  const texts: FigureText[] = [
    { x: 24, y: 26, text: picture.title, size: 15, anchor: "start", tone: "ink", bold: true },
    { x: box.left + box.width, y: 26, text: picture.axis, size: 12, anchor: "end", tone: "faint", bold: false },
    ...xTicks.map((tick) => small(mapping.toX(tick.value), bottom + 18, tick.text, "middle")),
    ...yTicks.map((tick) => small(box.left - 8, mapping.toY(tick.value) + 4, tick.text, "end")),
  ];
  const swatches: { x: number; y: number; styled: StyledTrace }[] = [];
  legend.forEach((row, at) => {
    const y = bottom + 40 + at * LINE;
    for (const { x, styled } of row) {
      swatches.push({ x: 24 + x, y: y - 4, styled });
      texts.push({ ...small(24 + x + SWATCH + 6, y, styled.label, "start"), tone: "ink" });
    }
  });
  return { width, height, mapping, xTicks, yTicks, texts, swatches };
}

/** The lines that have rows in a stretch of the x axis. */
export function inSight(styled: readonly StyledTrace[], x: Range): StyledTrace[] {
  return styled.filter(
    ({ trace }) => trace.length > 0 && (trace.x[0] ?? 0) <= x.max && (trace.x[trace.length - 1] ?? 0) >= x.min,
  );
}

function small(x: number, y: number, text: string, anchor: FigureText["anchor"]): FigureText {
  return { x, y, text, size: 11.5, anchor, tone: "faint", bold: false };
}

function legendRows(styled: readonly StyledTrace[], width: number): { x: number; styled: StyledTrace }[][] {
  const rows: { x: number; styled: StyledTrace }[][] = [];
  let x = 0;
  for (const entry of styled.slice(0, MOST_LEGEND)) {
    const wide = SWATCH + 6 + entry.label.length * LETTER + 18;
    if (!rows.length || x + wide > width) {
      rows.push([]);
      x = 0;
    }
    rows.at(-1)?.push({ x, styled: entry });
    x += wide;
  }
  return rows;
}
