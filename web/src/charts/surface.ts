/** `ChartSurface`: the plot of a chart with what lies above it, and what hands do there. */
import { effect } from "@preact/signals";
import { theme, token } from "../data/state";
import { metricText } from "../words";
import { feed } from "./board-feed";
import { cursor, highlighted } from "./cursor";
import { handsOn } from "./frames";
import { type GestureTarget, listen } from "./gestures";
import type { ChartModel } from "./model";
import { Overlay } from "./overlay";
import type { Ink, StyledTrace } from "./paint";
import { Plot } from "./plot";
import type { Range } from "./range";
import { nearestReading, type Reading, readingsAt } from "./readings";
import { backward, forward, valueAt } from "./scale";
import { namedLines } from "./styling";
import { tipOf } from "./tip";

const MOST_DOTS = 16;
const NEAR = 14; // pixels: a line so close to the pointer stands above the others
const REST = 110; // milliseconds after which exact rows are asked for
const AHEAD = 150; // pixels beyond the window from which a chart is fetched and drawn
const SLACK = 0.25; // of the stretch in sight, beyond either end of the data
const CLOSEST = 1e-7; // of all of the axis

export interface SurfaceOptions {
  /** The wheel by itself zooms. */
  wheelZooms?: boolean;
  /** Told what stands at the cursor of any chart, in a few words; null: nothing. */
  onReadout?: (text: string | null) => void;
}

export class ChartSurface implements GestureTarget {
  readonly model: ChartModel;
  readonly plot: Plot;
  readonly #host: HTMLElement;
  readonly #overlay: Overlay;
  readonly #options: SurfaceOptions;
  readonly #ends: (() => void)[] = [];
  #pointer = { x: 0, y: 0 };
  #restTimer: ReturnType<typeof setTimeout> | undefined;
  #asking: AbortController | null = null;
  #exact: { x: number; readings: readonly Reading[] | null } | null = null; // the rows beside the cursor, when they are there

  constructor(host: HTMLElement, model: ChartModel, options: SurfaceOptions = {}) {
    this.#host = host;
    this.model = model;
    this.#options = options;
    this.plot = new Plot(host, ink);
    this.#overlay = new Overlay(host);
    this.plot.onFrame = () => this.#showCursor();
    const sizes = new ResizeObserver(() => this.#resize());
    sizes.observe(host);
    const sight = new IntersectionObserver(([entry]) => this.#setShown(entry?.isIntersecting ?? false), {
      rootMargin: `${AHEAD}px`,
    });
    sight.observe(host);
    const elsewhere = (event: Event) => {
      // A finger has no way to leave a chart but to touch something else.
      if (event.target instanceof Node && !host.contains(event.target)) cursor.clear(this);
    };
    addEventListener("pointerdown", elsewhere);
    this.#ends.push(
      () => removeEventListener("pointerdown", elsewhere),
      listen(host, this),
      () => sizes.disconnect(),
      () => sight.disconnect(),
      cursor.onMove(() => this.#showCursor()),
      effect(() => {
        const content = model.content.value;
        if (content) this.plot.setContent(content);
        else this.plot.clear();
      }),
      effect(() => {
        void theme.value;
        this.plot.repaint();
      }),
      effect(() => {
        const run = highlighted.value;
        void model.content.value;
        const styled = run === null ? [] : model.styled.filter(({ trace }) => trace.run === run);
        this.plot.highlight(styled, styled.length > 0);
      }),
    );
    measureSoon(this);
  }

  /** Learns how large it is and whether it is in sight, where nobody has told it yet. */
  measure(): void {
    const { top, bottom } = this.#host.getBoundingClientRect();
    this.#resize();
    if (bottom > -AHEAD && top < innerHeight + AHEAD) this.#setShown(true);
  }

  dispose(): void {
    fresh.delete(this);
    for (const end of this.#ends) end();
    clearTimeout(this.#restTimer);
    this.#asking?.abort();
    cursor.clear(this);
    this.plot.destroy();
  }

  // What hands want.

  box() {
    return this.plot.box;
  }

  hover(at: { x: number; y: number } | null): void {
    if (!at || !this.model.content.value) {
      cursor.clear(this);
      this.#stopAsking();
      return;
    }
    this.#pointer = at;
    const { mapping } = this.plot;
    cursor.set(this.#snapped(mapping.fromX(at.x)), this.model.axis, this);
  }

  select(stretch: { from: number; to: number } | null): void {
    this.#overlay.showSelection(stretch, this.plot.box);
  }

  zoomTo(from: number, to: number): void {
    const range = this.#range();
    if (!range) return;
    this.#look(this.#at(range, from), this.#at(range, to), true);
  }

  zoomBy(factor: number, around: number): void {
    const range = this.#range();
    if (!range) return;
    this.#look(this.#at(range, around - around * factor), this.#at(range, around + (1 - around) * factor), false);
  }

  panBy(share: number): void {
    const range = this.#range();
    const all = this.model.view.extents.value;
    if (!range || !all) return;
    const log = this.model.view.logX.value;
    const across = forward(range.max, log) - forward(range.min, log);
    const least = forward(all.min, log) - across * SLACK;
    const most = forward(all.max, log) + across * SLACK;
    const from = Math.min(Math.max(forward(range.min, log) + share * across, least), most - across);
    if (!Number.isFinite(from)) return;
    handsOn(this.#settled);
    this.model.view.setRange({ min: backward(from, log), max: backward(from + across, log) });
  }

  zoomOut(): void {
    this.model.view.setRange(null, this.model.view.range.value !== null);
  }

  wheelZooms(): boolean {
    return this.#options.wheelZooms ?? false;
  }

  /** Moves the cursor by rows of the longest line, or to an end. */
  moveCursor(by: number | "first" | "last"): void {
    const longest = namedLines(this.model.styled).reduce<StyledTrace | null>(
      (most, styled) => (styled.trace.length > (most?.trace.length ?? 0) ? styled : most),
      null,
    )?.trace;
    const range = this.#range();
    if (!longest || !range) return;
    const first = longest.lowerBound(range.min);
    const end = longest.lowerBound(range.max);
    const last = Math.max(first, longest.x[end] === range.max && end < longest.length ? end : end - 1);
    const now =
      cursor.x === null
        ? by === "first" || (typeof by === "number" && by > 0)
          ? first
          : last
        : longest.nearest(cursor.x);
    const to = by === "first" ? first : by === "last" ? last : Math.min(last, Math.max(first, now + by));
    const x = longest.x[to];
    if (x === undefined) return;
    this.#pointer = { x: this.plot.mapping.toX(x), y: this.plot.box.top + this.plot.box.height / 2 };
    cursor.set(x, this.model.axis, this);
  }

  readonly #settled = (): void => {
    this.model.view.settle();
    this.plot.refit();
  };

  /** The stretch in sight. */
  #range(): Range | null {
    return this.model.content.value?.x ?? null;
  }

  #at(range: Range, share: number): number {
    return valueAt({ ...range, log: this.model.view.logX.value, kind: "number" }, share);
  }

  #look(min: number, max: number, push: boolean): void {
    const all = this.model.view.extents.value;
    if (!all || !(max > min)) return;
    const bounded = { min: Math.max(min, all.min), max: Math.min(max, all.max) };
    if (bounded.max - bounded.min < (all.max - all.min) * CLOSEST) return;
    const whole = bounded.min <= all.min && bounded.max >= all.max;
    if (!push) handsOn(this.#settled);
    this.model.view.setRange(whole ? null : bounded, push);
    if (push) feed().flush(); // before the next frame is drawn
  }

  #resize(): void {
    const { clientWidth, clientHeight } = this.#host;
    if (!clientWidth || !clientHeight) return;
    this.plot.setSize(clientWidth, clientHeight);
    this.model.setPoints(this.plot.box.width);
  }

  #setShown(shown: boolean): void {
    this.plot.setShown(shown);
    this.model.setShown(shown);
  }

  /** To the row that is closest, so that the line stands where the values are. */
  #snapped(x: number): number {
    const { mapping } = this.plot;
    const reach = this.#reach();
    const nearest = nearestReading(readingsAt(this.model.styled, x, reach), this.#pointer.y, mapping);
    const closest = nearest && Math.abs(mapping.toX(nearest.x) - mapping.toX(x)) <= 24 ? nearest.x : null;
    return closest ?? x;
  }

  /** As far as a line may have ended before the cursor and still count: some pixels. */
  #reach(): number {
    const { mapping } = this.plot;
    return Math.abs(mapping.fromX(mapping.box.left + 6) - mapping.fromX(mapping.box.left));
  }

  #showCursor(): void {
    const { box, mapping } = this.plot;
    const { x } = cursor;
    const own = cursor.origin === this;
    const content = this.model.content.value;
    const inSight =
      x !== null && content && x >= content.x.min && x <= content.x.max && cursor.axis === this.model.axis;
    if (!inSight) {
      this.#overlay.showCursor(null, box);
      this.#overlay.showDots([]);
      this.#overlay.showTip(null, 0, 0, box);
      if (highlighted.peek() === null) this.plot.highlight([], false);
      this.#options.onReadout?.(null);
      return;
    }
    const px = mapping.toX(x);
    const readings = readingsAt(this.model.styled, x, this.#reach());
    const nearest = own ? nearestReading(readings, this.#pointer.y, mapping) : null;
    const close = nearest && Math.abs(mapping.toY(nearest.value) - this.#pointer.y) <= NEAR ? nearest : null;
    this.#overlay.showCursor(px, box);
    this.#overlay.showDots(this.#dots(readings, close));
    this.#options.onReadout?.(readoutOf(readings));
    if (highlighted.peek() === null) this.plot.highlight(readings.length > 1 && close ? [close.styled] : [], false);
    if (!own) {
      this.#overlay.showTip(null, 0, 0, box);
      return;
    }
    this.#askExact(x);
    const exact = this.#exact?.readings ?? null;
    const tip = tipOf({ x, axis: this.model.axis, mapping, readings, exact, close, lines: this.model.styled });
    this.#overlay.showTip(tip, px, this.#pointer.y, box);
  }

  #dots(readings: readonly Reading[], close: Reading | null): { x: number; y: number; colour: string }[] {
    const shown = readings.length <= MOST_DOTS ? readings : close ? [close] : [];
    const { mapping, box } = this.plot;
    return shown
      .map(({ x, value, styled }) => ({ x: mapping.toX(x), y: mapping.toY(value), colour: styled.colour }))
      .filter(
        ({ x, y }) => x >= box.left - 1 && x <= box.left + box.width + 1 && y >= box.top && y <= box.top + box.height,
      );
  }

  /** Where a column stands for many steps, the rows beside the cursor are fetched as soon as it rests. */
  #askExact(x: number): void {
    if (this.#exact?.x === x) return;
    this.#stopAsking();
    const asking = new AbortController();
    this.#asking = asking;
    this.#exact = { x, readings: null };
    this.#restTimer = setTimeout(() => {
      this.model.exactAt(x, asking.signal).then(
        (styled) => {
          if (!styled || asking.signal.aborted) return;
          this.#exact = { x, readings: readingsAt(styled, x, Number.POSITIVE_INFINITY) };
          this.#showCursor();
        },
        () => {}, // the column's figures stay: they are true, and a server that does not answer is told of elsewhere
      );
    }, REST);
  }

  #stopAsking(): void {
    clearTimeout(this.#restTimer);
    this.#asking?.abort();
    this.#asking = null;
    this.#exact = null;
  }
}

/** Of one line its value, of several the best one's. */
function readoutOf(readings: readonly Reading[]): string | null {
  const [best] = readings;
  return best ? metricText(best.styled.trace.key, best.value) : null;
}

const fresh = new Set<ChartSurface>();

/**
 * Measures a surface together with all that are made in this moment: the page is laid out once for them, and series are
 * asked for a frame or two before observers tell.
 */
function measureSoon(surface: ChartSurface): void {
  if (!fresh.size) {
    queueMicrotask(() => {
      for (const one of fresh) one.measure();
      fresh.clear();
      feed().flush();
    });
  }
  fresh.add(surface);
}

let inkCache: { theme: string; ink: Ink } | null = null;

/** Colours and font for canvases; they change with the theme. */
export function ink(): Ink {
  if (inkCache?.theme === theme.peek()) return inkCache.ink;
  const fresh: Ink = {
    panel: token("panel"),
    line: token("line"),
    ghost: token("ghost"),
    faint: token("faint"),
    dim: token("dim"),
    ink: token("ink"),
    warn: token("warn"),
    bad: token("bad"),
    font: `11px ${token("sans") || "sans-serif"}`, // whole pixels: uPlot scales no others
  };
  inkCache = { theme: theme.peek(), ink: fresh };
  return fresh;
}
