/** `ChartView`: how charts show their series: axis, smoothing, scales, and the stretch of x that is looked at. */
import { effect, type ReadonlySignal, signal, untracked } from "@preact/signals";
import { type Codec, choice, flag, number, type Param, pageParam, sharedParam, text } from "../address";
import type { Axis } from "../data/types";
import type { Range } from "./range";
import type { Spread } from "./spread";

export const AXES: readonly Axis[] = ["step", "tokens", "epoch", "wall time", "relative time"];
/** What `S` goes through: the weights of the past that are the terminal board's off, light, medium and heavy. */
export const SMOOTHINGS: readonly number[] = [0, 0.5, 0.7, 0.85];

export const DEFAULT_SMOOTHING = 0.6;
const ROOM_TO_GROW = 0.02; // of the x axis

/** Something with a value that can be set: a signal, or a parameter of the address. */
interface Setting<T> {
  value: T;
}

export interface ChartView {
  readonly axis: Setting<Axis>;
  /** The weight of the past, 0 (none) to 0.999; `alpha` of the series is 1 less it. */
  readonly smooth: Setting<number>;
  readonly logX: Setting<boolean>;
  readonly logY: Setting<boolean>;
  /** Outliers are left out of the y axis. */
  readonly clip: Setting<boolean>;
  /** What was overwritten by a resume, and where that was. */
  readonly superseded: Setting<boolean>;
  /** The setting by whose values runs are drawn as one line; empty: each run for itself. */
  readonly groupBy: Setting<string>;
  readonly spread: Setting<Spread>;
  /** The stretch of the x axis in sight; null: all of it. It changes with every frame of a drag. */
  readonly range: ReadonlySignal<Range | null>;
  /** How far the charts that share this view go on the x axis. */
  readonly extents: Extents;
  /** `push`: a step of its own in the history, to go back from. */
  setRange(range: Range | null, push?: boolean): void;
  /** A hand rests: the address may say where. */
  settle(): void;
}

/** The x axis from the first row of any chart to the last: what all of them show when nobody zoomed. */
export class Extents {
  readonly #known = new Map<object, Range>();
  readonly #union = signal<Range | null>(null);

  get value(): Range | null {
    return this.#union.value;
  }

  /**
   * Of one chart; null when it is gone or has no rows. `grown`: by live rows; then the axis gets some room beyond them,
   * so that it need not be drawn anew with each row.
   */
  set(chart: object, extent: Range | null, grown = false): void {
    if (extent) this.#known.set(chart, extent);
    else this.#known.delete(chart);
    const all = [...this.#known.values()];
    const union = all.length
      ? { min: Math.min(...all.map(({ min }) => min)), max: Math.max(...all.map(({ max }) => max)) }
      : null;
    const before = this.#union.peek();
    if (grown && union && before && union.min === before.min && union.max <= before.max) return;
    if (grown && union) union.max += (union.max - union.min) * ROOM_TO_GROW;
    if (union?.min !== before?.min || union?.max !== before?.max) this.#union.value = union;
  }
}

const axisName: Codec<Axis> = {
  parse: (typed) => AXES.find((axis) => axis.replace(" ", "-") === typed),
  format: (axis) => axis.replace(" ", "-"),
};
const rangeCodec: Codec<Range | null> = {
  parse: (typed) => {
    const [min, max] = typed.split(":").map(Number);
    return min !== undefined && max !== undefined && max > min && Number.isFinite(max - min) ? { min, max } : undefined;
  },
  format: (range) => (range ? `${short(range.min)}:${short(range.max)}` : ""),
};

/** As few digits as a pixel needs. */
function short(value: number): string {
  return String(Number(value.toPrecision(10)));
}

/** A stretch of x that the address tells: at once where it is a step of the history, else when the hand rests. */
function addressRange(stored: Param<Range | null>): Pick<ChartView, "range" | "setRange" | "settle"> {
  const range = signal(stored.peek());
  let isStored = true;
  effect(() => {
    const given = stored.value; // Back, Forward, or an address that was typed
    untracked(() => {
      if (stored.format(given) !== stored.format(range.peek())) range.value = given;
    });
  });
  return {
    range,
    setRange(next, push = false) {
      range.value = next;
      isStored = push;
      if (push) stored.value = next;
    },
    settle() {
      if (!isStored) stored.replace(range.peek());
      isStored = true;
    },
  };
}

function bounded(low: number, high: number): Codec<number> {
  return {
    parse: (typed) => {
      const value = number.parse(typed);
      return value === undefined ? undefined : Math.min(high, Math.max(low, value));
    },
    format: number.format,
  };
}

/** The view that the address describes: one for all charts of the board. */
export const boardView: ChartView = {
  axis: sharedParam("x", axisName, "step"),
  smooth: sharedParam("smooth", bounded(0, 0.999), DEFAULT_SMOOTHING),
  logX: sharedParam("logx", flag, false),
  logY: sharedParam("log", flag, false),
  clip: sharedParam("clip", flag, false),
  superseded: sharedParam("superseded", flag, false),
  groupBy: sharedParam("mean", text, ""),
  spread: sharedParam("spread", choice<Spread>("std", "range"), "std"),
  extents: new Extents(),
  ...addressRange(sharedParam("range", rangeCodec, null)),
};

/** A view of the charts of one page. What it is not given stays as it is; the stretch in sight is in the address. */
export function ownView(changes: Partial<ChartView> = {}): ChartView {
  return {
    axis: signal<Axis>("step"),
    smooth: signal(0),
    logX: signal(false),
    logY: signal(false),
    clip: signal(false),
    superseded: signal(false),
    groupBy: signal(""),
    spread: signal<Spread>("std"),
    extents: new Extents(),
    ...addressRange(pageParam("zoom", rangeCodec, null)),
    ...changes,
  };
}

/** Another axis counts otherwise: the stretch that is looked at means nothing on it. */
export function setAxis(view: ChartView, axis: Axis): void {
  view.setRange(null);
  view.settle();
  view.axis.value = axis;
}

/** The share of new rows in the exponential mean, as series are asked for; 1: none. */
export function alphaOf(smooth: number): number {
  return smooth > 0 ? 1 - smooth : 1;
}

/** The next of the fixed smoothings. */
export function nextSmoothing(smooth: number): number {
  return SMOOTHINGS.find((fixed) => fixed > smooth + 1e-9) ?? 0;
}
