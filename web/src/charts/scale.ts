/** `Scale`: a stretch of an axis, linear or logarithmic, and its ticks at round numbers. */
import type { Axis } from "../data/types";
import { clock, compact, count, duration, exact, grouped, moment, number } from "../words";

/** What the numbers of an axis are: it decides how ticks are spaced and worded. */
export type ScaleKind = "number" | "count" | "time" | "clock";

export interface Scale {
  readonly min: number;
  readonly max: number;
  readonly log: boolean;
  readonly kind: ScaleKind;
}

export interface Tick {
  readonly value: number;
  readonly text: string;
}

const CLOCK_STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400];
const TIME_UNITS: readonly [string, number][] = [
  ["d", 86_400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
];
const LONG_NUMBER = 100_000; // from here on a number is wider than the axis, and is shortened as a count
const COUNT_UNITS: readonly [number, string][] = [
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];
const DIGITS = [4, 6, 9, 12, 17]; // of numbers at ticks: as few as tell them apart

/** Where a value stands as the scale counts: of a log scale, its common logarithm. */
export function forward(value: number, log: boolean): number {
  return log ? Math.log10(value) : value;
}

export function backward(position: number, log: boolean): number {
  return log ? 10 ** position : position;
}

/** The share of the axis at which a value lies: 0 at its beginning, 1 at its end. */
export function share(scale: Scale, value: number): number {
  const low = forward(scale.min, scale.log);
  return (forward(value, scale.log) - low) / (forward(scale.max, scale.log) - low);
}

/** The value at a share of the axis. */
export function valueAt(scale: Scale, at: number): number {
  const low = forward(scale.min, scale.log);
  return backward(low + at * (forward(scale.max, scale.log) - low), scale.log);
}

export function kindOf(axis: Axis): ScaleKind {
  if (axis === "wall time") return "clock";
  if (axis === "relative time") return "time";
  return axis === "epoch" ? "number" : "count";
}

/** Round numbers between two, about `amount` of them. */
export function roundNumbers(low: number, high: number, amount: number): number[] {
  const rough = high / amount - low / amount;
  if (!(rough > 0) || !Number.isFinite(rough)) return [];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999) ?? 10);
  const first = Math.ceil(low / step - 1e-9);
  if (!Number.isFinite(first) || Math.abs(first) > 1e15) return [];
  const values: number[] = [];
  for (let at = first; at < first + amount + 2; at++) {
    // 3 × 0.1 is 0.30000000000000004: divided by ten it is 0.3
    const value = (step < 1 ? at / (1 / step) : at * step) + 0; // no -0
    if (value <= high + step * 1e-9) values.push(value);
  }
  return values;
}

/** About `amount` ticks, at round numbers. */
export function ticks(scale: Scale, amount: number): Tick[] {
  const wanted = Math.max(2, amount);
  if (scale.log) return logTicks(scale, wanted);
  if (scale.kind === "clock") return clockTicks(scale, wanted);
  const unit = scale.kind === "time" ? timeUnit(scale.max)[1] : 1;
  let values = roundNumbers(scale.min / unit, scale.max / unit, wanted);
  if (values.length < 3) values = roundNumbers(scale.min / unit, scale.max / unit, wanted * 2);
  const texts = tickTexts(values, scale.kind);
  const suffix = scale.kind === "time" ? ` ${timeUnit(scale.max)[0]}` : "";
  return values.map((value, at) => ({ value: value * unit, text: value ? `${texts[at]}${suffix}` : "0" }));
}

/** Numbers beside each other, all with as many decimals as tell them apart. */
export function tickTexts(values: readonly number[], kind: ScaleKind = "number"): string[] {
  const [first, second] = values;
  if (first === undefined) return [];
  if (second === undefined) return [Math.abs(first) >= LONG_NUMBER ? compact(first) : number(first)];
  const step = Math.abs(second - first);
  const most = Math.max(...values.map(Math.abs));
  if (most >= (kind === "count" ? 1000 : LONG_NUMBER) && step >= 1) {
    return values.map((value) => {
      const [unit, letter] = COUNT_UNITS.find(([size]) => Math.abs(value) >= size) ?? [1, ""];
      const decimals = Math.max(0, -Math.floor(Math.log10(step / unit) + 1e-9));
      return `${trimmed(grouped(value / unit, decimals))}${letter}`;
    });
  }
  if (step <= 0 || most >= 1e9 || step < 1e-5) {
    const worded = DIGITS.map((digits) => values.map((value) => number(value, digits)));
    return worded.find((texts) => new Set(texts).size === texts.length) ?? values.map(exact);
  }
  const decimals = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  return values.map((value) => grouped(Math.abs(value) > step / 1000 ? value : 0, decimals));
}

function trimmed(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function timeUnit(seconds: number): [string, number] {
  return TIME_UNITS.find(([unit, size]) => seconds >= 2 * size || unit === "s") ?? ["s", 1];
}

/** Decades; with fewer than two in sight also 2 and 5, and in less than one, round numbers. */
function logTicks(scale: Scale, amount: number): Tick[] {
  const low = Math.log10(scale.min);
  const high = Math.log10(scale.max);
  const first = Math.ceil(low - 1e-9);
  const last = Math.floor(high + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / (amount + 1)));
  const decades: number[] = [];
  for (let power = first; power <= last; power += every) decades.push(power);
  const crowded = 3 * (high - low) > 2 * amount; // 1, 2 and 5 of each decade
  if (decades.length >= 3 || (crowded && decades.length === 2)) {
    return decades.map((power) => ({ value: 10 ** power, text: logText(10 ** power, scale.kind) }));
  }
  let inside: number[] = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); power++) {
    for (const factor of [1, 2, 5]) inside.push(power < 0 ? factor / 10 ** -power : factor * 10 ** power);
  }
  inside = inside.filter((value) => value >= scale.min * (1 - 1e-9) && value <= scale.max * (1 + 1e-9));
  if (inside.length < 3) inside = roundNumbers(scale.min, scale.max, amount).filter((value) => value > 0);
  return inside.map((value) => ({ value, text: logText(value, scale.kind) }));
}

function logText(value: number, kind: ScaleKind): string {
  if (kind === "time") return duration(value);
  if (value >= 1000) return compact(value).replace(/^(\d),000$/, "$1k");
  return value < 1e-3 ? Number(value.toPrecision(3)).toExponential() : number(value);
}

function clockTicks(scale: Scale, amount: number): Tick[] {
  const across = scale.max - scale.min;
  const rough = across / amount;
  const step = CLOCK_STEPS.find((seconds) => seconds >= rough) ?? Math.ceil(rough / 86_400) * 86_400;
  const shift = new Date(scale.min * 1000).getTimezoneOffset() * 60; // whole hours and days of the reader's clock
  const first = Math.ceil((scale.min - shift) / step);
  const marks: Tick[] = [];
  for (let at = first; at < first + amount + 2; at++) {
    const value = at * step + shift;
    if (value <= scale.max) marks.push({ value, text: clockText(value, step, across) });
  }
  return marks;
}

function clockText(seconds: number, step: number, across: number): string {
  const at = new Date(seconds * 1000);
  const day = moment(seconds).slice(5, 10);
  if (step >= 86_400) return day;
  return across > 86_400 ? `${day} ${clock(at, false)}` : clock(at, step < 60);
}

/** A value of an x axis of runs, as one says it. `across`: how much of the axis is shown. */
export function xText(value: number, axis: Axis, across = 0): string {
  if (axis === "relative time") return duration(value);
  if (axis === "wall time") return across > 86_400 ? moment(value).slice(5, 16) : clock(new Date(value * 1000));
  if (axis === "epoch") return number(value, Math.abs(value) >= 100 ? 5 : 4);
  return axis === "tokens" && Math.abs(value) >= 1e7 ? compact(value) : count(Math.round(value));
}
