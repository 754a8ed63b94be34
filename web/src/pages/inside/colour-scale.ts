// Numbers as colours: one hue from the ground of the page to its strongest, light and dark.
import type { Figure } from "../../data/types";
import { asNumber } from "../../words";

export type Rgb = readonly [number, number, number];
export interface ColourScale {
  readonly low: number;
  readonly high: number;
  readonly log: boolean;
}

/** From the least to the greatest: away from the ground, ever stronger, so that lightness alone tells the order. */
const RAMPS: Record<"light" | "dark", readonly Rgb[]> = {
  light: [
    [240, 243, 250],
    [176, 199, 243],
    [98, 145, 231],
    [36, 97, 216],
    [15, 42, 105],
  ],
  dark: [
    [30, 34, 42],
    [34, 62, 115],
    [58, 105, 190],
    [110, 161, 255],
    [232, 240, 255],
  ],
};
const ON_STRONG: Record<"light" | "dark", number> = { light: 0.52, dark: 0.66 }; // from which share on a text takes the ground's colour
const DECADES = 2; // that numbers span where a log scale shows more of them

/** The colour at a share of the scale, from 0 to 1. */
export function rgbAt(share: number, theme: "light" | "dark"): Rgb {
  const ramp = RAMPS[theme];
  const at = Math.max(0, Math.min(1, share)) * (ramp.length - 1);
  const first = ramp[Math.min(ramp.length - 2, Math.floor(at))] ?? [0, 0, 0];
  const second = ramp[Math.min(ramp.length - 1, Math.floor(at) + 1)] ?? first;
  const part = at - Math.min(ramp.length - 2, Math.floor(at));
  const mixed = (channel: 0 | 1 | 2) => Math.round(first[channel] + (second[channel] - first[channel]) * part);
  return [mixed(0), mixed(1), mixed(2)];
}

export function colourAt(share: number, theme: "light" | "dark"): string {
  return Number.isNaN(share) ? "transparent" : `rgb(${rgbAt(share, theme).join(" ")})`;
}

/** The colour of a text on that of a share. */
export function inkAt(share: number, theme: "light" | "dark"): string {
  return share > ON_STRONG[theme] ? (theme === "light" ? "#fff" : "#121314") : "var(--ink)";
}

/** Where a value lies on the scale; NaN where there is none. Beyond the ends it is at the end. */
export function shareOf(scale: ColourScale, value: number): number {
  if (Number.isNaN(value)) return Number.NaN;
  if (scale.high <= scale.low) return value < scale.low ? 0 : value > scale.high ? 1 : 0.5;
  if (value === Number.POSITIVE_INFINITY) return 1;
  const place = (number: number) => (scale.log ? Math.log(Math.max(number, scale.low)) : number);
  const share = (place(value) - place(scale.low)) / (place(scale.high) - place(scale.low));
  return Math.max(0, Math.min(1, share));
}

/** The finite numbers of a table: their ends, and the least that is above 0. */
export function extremes(values: readonly (readonly number[])[]): { low: number; high: number; positive: number } {
  let [low, high, positive] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (const row of values)
    for (const value of row) {
      if (!Number.isFinite(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
      if (value > 0) positive = Math.min(positive, value);
    }
  return low <= high ? { low, high, positive } : { low: 0, high: 0, positive: Number.POSITIVE_INFINITY };
}

/** The scale of a table. `auto` is logarithmic where no number is below 0 and they span decades. */
export function scaleOf(values: readonly (readonly number[])[], form: "auto" | "linear" | "log"): ColourScale {
  const { low, high, positive } = extremes(values);
  const canBeLog = positive < high;
  const spans = low >= 0 && high / positive >= 10 ** DECADES;
  const log = canBeLog && (form === "log" || (form === "auto" && spans));
  return log ? { low: positive, high, log } : { low, high, log: false };
}

/** Figures of the server as numbers; NaN for none. */
export function numbersOf(figures: readonly (readonly Figure[])[]): number[][] {
  return figures.map((row) => row.map((figure) => (figure === null ? Number.NaN : asNumber(figure))));
}
