// Axes of the scatter plot and of parallel coordinates: numbers, log where they span decades, or categories.
import { number } from "../../words";
import { settingText } from "../run/settings";

export interface Tick {
  at: number; // 0 … 1 along the axis
  text: string;
}

/** An axis. `position` gives 0 … 1, or null for what has no place on it. */
export interface Scale {
  kind: "linear" | "log" | "category";
  position(value: unknown): number | null;
  /** What stands at 0 … 1: a number, or the nearest category. */
  invert(at: number): number | string;
  ticks(most: number): Tick[];
}

const LOG_FROM = 10; // times from the least to the greatest from which on an axis is logarithmic, as in `linnet plot --against`
const MOST_CATEGORIES = 24;
const MOST_SETTINGS = 8; // values that are each labelled, instead of round numbers

/** The axis that suits values; `log`: "auto" decides as `linnet plot --against` does. `room`: of the range, left free at both ends. */
export function scaleFor(values: readonly unknown[], log: "auto" | boolean = "auto", room = 0.06): Scale {
  const known = values.filter((value) => value !== null && value !== undefined);
  const numbers = known.filter(isFiniteNumber);
  const others = known.filter((value) => typeof value !== "number");
  if (others.length > 0 || numbers.length === 0) return categoryScale(known);
  const low = Math.min(...numbers);
  const high = Math.max(...numbers);
  const isLog = log === "auto" ? low > 0 && high / low >= LOG_FROM : log && low > 0;
  const distinct = [...new Set(numbers)].sort((a, b) => a - b);
  return numberScale(low, high, isLog, room, distinct.length <= MOST_SETTINGS ? distinct : []);
}

export function isFiniteNumber(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value);
}

function numberScale(low: number, high: number, log: boolean, room: number, settings: readonly number[]): Scale {
  const warp = (value: number) => (log ? Math.log10(value) : value);
  const [from, to] = withRoom(warp(low), warp(high), room);
  const positionOf = (value: number) => (warp(value) - from) / (to - from);
  return {
    kind: log ? "log" : "linear",
    position: (value) => (isFiniteNumber(value) && (!log || value > 0) ? positionOf(value) : null),
    invert: (at) => (log ? 10 ** (from + at * (to - from)) : from + at * (to - from)),
    ticks: (most) => {
      const own =
        settings.length <= most &&
        settings.every(
          (value, index) => index === 0 || positionOf(value) - positionOf(settings[index - 1] ?? value) > 0.7 / most,
        );
      const marks = own && settings.length ? settings : log ? logTicks(from, to, most) : linearTicks(from, to, most);
      return marks.map((value) => ({ at: positionOf(value), text: number(value, 3) }));
    },
  };
}

function withRoom(low: number, high: number, room: number): [number, number] {
  if (low === high) {
    const half = Math.abs(low) * 0.1 || 0.5;
    return [low - half, high + half];
  }
  return [low - (high - low) * room, high + (high - low) * room];
}

/** Round numbers, at most so many. */
export function linearTicks(from: number, to: number, most: number): number[] {
  const rough = (to - from) / Math.max(1, most);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((times) => times * power).find((size) => size >= rough) ?? rough;
  const ticks: number[] = [];
  for (let at = Math.ceil(from / step); at * step <= to + step * 1e-9 && ticks.length < 100; at++) {
    ticks.push(Number((at * step).toPrecision(12)));
  }
  return ticks;
}

/** Powers of ten, with 2 and 5 between where there is room; `from` and `to` are exponents. */
function logTicks(from: number, to: number, most: number): number[] {
  for (const steps of [[1, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]]) {
    const ticks: number[] = [];
    for (let power = Math.floor(from); power <= Math.ceil(to); power++) {
      for (const times of steps) {
        const exponent = power + Math.log10(times);
        if (exponent >= from && exponent <= to) ticks.push(Number((times * 10 ** power).toPrecision(3)));
      }
    }
    if (ticks.length <= most) return ticks.length ? ticks : linearTicks(10 ** from, 10 ** to, 2);
  }
  const every = Math.ceil((to - from) / most);
  const powers = Array.from({ length: Math.floor(to) - Math.ceil(from) + 1 }, (_, index) => Math.ceil(from) + index);
  return powers.filter((_, index) => index % every === 0).map((power) => 10 ** power);
}

function categoryScale(values: readonly unknown[]): Scale {
  const sorted = [...values].sort((a, b) => compareCategories(a, b));
  const names = [...new Set(sorted.map(settingText))];
  const positionAt = (index: number) => (index + 0.5) / names.length;
  const positions = new Map(names.map((name, index) => [name, positionAt(index)]));
  return {
    kind: "category",
    position: (value) => (value === null || value === undefined ? null : (positions.get(settingText(value)) ?? null)),
    invert: (at) => names[Math.min(names.length - 1, Math.max(0, Math.floor(at * names.length)))] ?? "",
    ticks: (most) => {
      const every = Math.ceil(names.length / Math.max(1, Math.min(most, MOST_CATEGORIES)));
      return names.flatMap((name, index) => (index % every === 0 ? [{ at: positionAt(index), text: name }] : []));
    },
  };
}

function compareCategories(a: unknown, b: unknown): number {
  if (isFiniteNumber(a) && isFiniteNumber(b)) return a - b;
  if (isFiniteNumber(a) !== isFiniteNumber(b)) return isFiniteNumber(a) ? -1 : 1;
  return settingText(a).localeCompare(settingText(b), "en", { numeric: true });
}
