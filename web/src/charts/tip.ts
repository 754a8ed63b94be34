/** What the tooltip says of a place: the value of each line there, how far its column goes, warnings. */
import type { Axis } from "../data/types";
import { number } from "../words";
import type { Mapping } from "./geometry";
import type { Tip, TipRow } from "./overlay";
import type { StyledTrace } from "./paint";
import type { Reading } from "./readings";
import { xText } from "./scale";

const MOST_ROWS = 14;
const MARK_NEAR = 7; // pixels
const BESIDE = 3; // pixels from the cursor at which a row says where it stands

export interface TipPlace {
  readonly x: number;
  readonly axis: Axis;
  readonly mapping: Mapping;
  /** Of the lines in sight, the best first. */
  readonly readings: readonly Reading[];
  /** The very rows beside the place, where a column stands for many steps and they have been fetched. */
  readonly exact: readonly Reading[] | null;
  /** The one at the pointer. */
  readonly close: Reading | null;
  readonly lines: readonly StyledTrace[];
}

export function tipOf(at: TipPlace): Tip {
  const { axis, mapping, readings, exact, close } = at;
  const across = mapping.x.max - mapping.x.min;
  const shown = exact ?? readings;
  const x = exact?.[0]?.x ?? at.x;
  const strong = close ? shown.findIndex((reading) => isSameLine(reading, close)) : 0;
  const first = Math.max(0, Math.min(strong - Math.floor(MOST_ROWS / 2), shown.length - MOST_ROWS));
  const rows = shown.slice(first, first + MOST_ROWS).map((reading) => tipRow(reading, x, at));
  const notes = warningsAt(at).map((text) => ({ text, warning: true }));
  if (shown.length > rows.length) notes.push({ text: `and ${shown.length - rows.length} more`, warning: false });
  const width = exact
    ? 0
    : Math.max(0, ...readings.map(({ ranges, styled }) => (ranges && !styled.spread ? styled.trace.columnWidth : 0)));
  const words = width
    ? `${xText(x - width / 2, axis, across)} – ${xText(x + width / 2, axis, across)}`
    : xText(x, axis, across);
  return { title: `${axis} ${words}`, rows, notes };
}

function tipRow(reading: Reading, x: number, { axis, mapping, readings, exact, close }: TipPlace): TipRow {
  const { styled, value, raw } = reading;
  const column = exact ? readings.find((other) => isSameLine(other, reading)) : reading;
  const beside = Math.abs(mapping.toX(reading.x) - mapping.toX(x)) > BESIDE;
  const notes = [
    !reading.ranges && value !== raw ? `raw ${number(raw)}` : "",
    column?.ranges ? `${number(column.low)} – ${number(column.high)}` : "",
    beside ? `at ${xText(reading.x, axis)}` : "",
  ];
  return {
    colour: styled.colour,
    dashed: styled.dashed,
    label: styled.label,
    value: number(value),
    note: notes.filter(Boolean).join(" · "),
    strong: close !== null && isSameLine(reading, close),
  };
}

function warningsAt({ x, mapping, lines }: TipPlace): string[] {
  return lines.flatMap(({ trace, label }) =>
    trace.marks
      .filter((mark) => Math.abs(mapping.toX(mark.x) - mapping.toX(x)) <= MARK_NEAR)
      .slice(0, 2)
      .map((mark) => `▲ ${lines.length > 1 ? `${label}: ` : ""}${mark.text}`),
  );
}

function isSameLine(one: Reading, other: Reading): boolean {
  const { trace } = one.styled;
  const { run, key, superseded, inherited } = other.styled.trace;
  return trace.run === run && trace.key === key && trace.superseded === superseded && trace.inherited === inherited;
}
