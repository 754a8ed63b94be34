/** What is said of a chart in figures: its lines with last and best values, its warnings, its headline. */
import { nameOf } from "../data/state";
import type { Axis } from "../data/types";
import { metricText, number } from "../words";
import type { StyledTrace } from "./paint";
import type { Range } from "./range";
import { readingsAt } from "./readings";
import { xText } from "./scale";
import { bestPoint } from "./styling";

/** A line in figures. */
export interface LineSummary {
  readonly styled: StyledTrace;
  readonly last: string;
  readonly lastAt: string;
  readonly best: string;
  readonly bestAt: string;
}

export function lineSummaries(styled: readonly StyledTrace[], axis: Axis): LineSummary[] {
  return styled.map((line) => {
    const { trace } = line;
    const end = trace.length - 1;
    const last: readonly [number, number] | null =
      trace.last ?? (end >= 0 ? [trace.x[end] ?? 0, trace.mean[end] ?? 0] : null);
    return {
      styled: line,
      last: number(last?.[1]),
      lastAt: last ? xText(last[0], axis) : "–",
      best: number(trace.best?.[1]),
      bestAt: trace.best ? xText(trace.best[0], axis) : "–",
    };
  });
}

export interface Headline {
  readonly text: string;
  readonly warning: boolean;
  /** All of it, where there is more than the text says. */
  readonly title: string;
}

/** In the corner of a chart: its warnings, else the best value and whose it is, else the last value. */
export function headline(styled: readonly StyledTrace[], keys: readonly string[], axis: Axis, long: boolean): Headline {
  const own = styled.filter(({ isBaseline, trace }) => !isBaseline && trace.inherited === null);
  const warnings = own.flatMap(({ trace, label }) => trace.marks.map((mark) => ({ mark, label })));
  const [first] = warnings;
  if (first) {
    const others = warnings.length > 1 ? ` +${warnings.length - 1}` : "";
    const title = warnings.slice(0, 12).map(({ mark, label }) => `${label}: ${mark.text}`);
    return { text: `▲ ${first.mark.text}${others}`, warning: true, title: title.join("\n") };
  }
  const best = bestPoint(styled, keys);
  if (best?.trace.best) {
    const [at, value] = best.trace.best;
    const several = new Set(own.map(({ trace }) => trace.run)).size > 1;
    const whole = `best ${number(value)}${several ? ` · ${nameOf(best.trace.run)}` : ""} at ${xText(at, axis)}`;
    return { text: long ? whole : number(value), warning: false, title: whole };
  }
  const only = own.filter(({ trace }) => !trace.superseded);
  const [line] = only;
  if (only.length !== 1 || !line) return { text: "", warning: false, title: "" };
  const last = metricText(line.trace.key, line.trace.last?.[1]);
  return { text: last, warning: false, title: `last ${last}` };
}

/** Values of each line at some places of the x axis, evenly spread: the chart as a table. */
export interface ValueTable {
  readonly columns: readonly string[];
  readonly rows: readonly { readonly styled: StyledTrace; readonly values: readonly string[] }[];
}

export function valueTable(styled: readonly StyledTrace[], axis: Axis, x: Range, amount: number): ValueTable {
  const across = x.max - x.min;
  const spots = Array.from({ length: amount }, (_, at) => x.min + (across * at) / Math.max(1, amount - 1));
  const readings = spots.map(
    (spot) => new Map(readingsAt(styled, spot, 0).map((reading) => [reading.styled, reading])),
  );
  return {
    columns: spots.map((spot) => xText(spot, axis, across)),
    rows: styled.map((line) => ({
      styled: line,
      values: readings.map((at) => number(at.get(line)?.value ?? null)),
    })),
  };
}
