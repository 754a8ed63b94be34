// Parallel coordinates: an axis for each setting and the result, a line for each run, and brushes that filter.
import type { Codec } from "../../address";

/** What is let through of an axis, 0 … 1 from its lower end. */
export interface Brush {
  from: number;
  to: number;
}
export type Brushes = ReadonlyMap<string, Brush>;

const SNAPPED = 0.025;

/** Brushes in the address: `config.lr:0.2-0.6;…`. */
export const brushCodec: Codec<Brushes> = {
  parse: (typed) => {
    const brushes = new Map<string, Brush>();
    for (const part of typed.split(";")) {
      const cut = part.lastIndexOf(":");
      const [from, to] = part
        .slice(cut + 1)
        .split("-")
        .map(Number);
      const isBrush = cut > 0 && from !== undefined && to !== undefined && from >= 0 && to <= 1 && from < to;
      if (isBrush) brushes.set(part.slice(0, cut), { from, to });
    }
    return brushes;
  },
  format: (brushes) => [...brushes].map(([name, { from, to }]) => `${name}:${short(from)}-${short(to)}`).join(";"),
};

function short(share: number): string {
  return String(Number(share.toFixed(3)));
}

/** Whether a line passes all brushes; a run without a value on a brushed axis does not. */
export function passes(positions: ReadonlyMap<string, number | null>, brushes: Brushes): boolean {
  for (const [name, { from, to }] of brushes) {
    const position = positions.get(name);
    if (position === undefined) continue; // an axis that is not shown
    if (position === null || position < from || position > to) return false;
  }
  return true;
}

/** `name` moved by so many places. */
export function moved(names: readonly string[], name: string, by: number): string[] {
  const from = names.indexOf(name);
  if (from < 0) return [...names];
  const others = names.filter((other) => other !== name);
  const to = Math.max(0, Math.min(others.length, from + by));
  return others.toSpliced(to, 0, name);
}

/** The brush after one end was moved; null when nothing is left out any more. */
export function adjusted(brush: Brush | undefined, end: "from" | "to", by: number): Brush | null {
  const now = brush ?? { from: 0, to: 1 };
  const next = { ...now, [end]: Math.max(0, Math.min(1, now[end] + by)) };
  if (next.to - next.from < 0.02) return now;
  return next.from <= 0 && next.to >= 1 ? null : next;
}

/** The brush between two places, at the very end of the axis where a hand came close to it. */
export function brushBetween(a: number, b: number): Brush {
  const [from, to] = [Math.min(a, b), Math.max(a, b)];
  return { from: from < SNAPPED ? 0 : from, to: to > 1 - SNAPPED ? 1 : to };
}
