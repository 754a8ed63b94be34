/** `ChartModel`: the series of one chart: which are fetched, how they are drawn, what is said of them. */
import { batch, computed, effect, type ReadonlySignal, type Signal, signal, untracked } from "@preact/signals";
import { nameOf, paintOf, theme } from "../data/state";
import type { Axis } from "../data/types";
import { feed } from "./board-feed";
import type { Demand, Follower, TraceSet } from "./feed";
import { isHandsOn } from "./frames";
import type { LayerPart } from "./layer";
import type { StyledTrace } from "./paint";
import type { PlotContent } from "./plot";
import { type Range, xRange } from "./range";
import { kindOf } from "./scale";
import { bestPoint, type ChartSubject, groupsOf, styledTraces } from "./styling";
import type { Trace } from "./trace";
import { alphaOf, type ChartView } from "./view";

export type ChartStatus = "loading" | "ready" | "empty" | { readonly problem: string };

const REDRAW_EVERY = 90; // milliseconds, while rows arrive
const REFETCH_EVERY = 1000; // milliseconds, while rows arrive that do not fit
const OVERGROWN = 0.12; // share of the grid that may be added before the series is fetched anew
const FINER_AFTER = 50; // milliseconds after the last move of a pan
const WORTH_WAITING = 80; // milliseconds for finer lines, before those at hand are stretched
const LOG_PIECES = 3;
const LOG_RATIO = 16;
const NEAR_ZERO = 0.05; // of the axis
const EXACT_POINTS = 200; // more rows than stand beside a place
const NO_TRACES: readonly StyledTrace[] = [];

export class ChartModel implements Follower {
  readonly view: ChartView;
  readonly #status = signal<ChartStatus>("loading");
  readonly #content = signal<PlotContent | null>(null);
  readonly #lines = signal<readonly StyledTrace[]>(NO_TRACES);
  readonly #subject: Signal<ChartSubject>;
  /** Names and colours of the runs: they arrive with the table, perhaps after the series. */
  readonly #looks = computed(() => this.#subject.value.runs.map((run) => `${paintOf(run)} ${nameOf(run)}`).join("\n"));
  #points = 0;
  #overviewStale = false;
  #shown = false;
  #overview: TraceSet | null = null;
  #details: readonly TraceSet[] = []; // from the longest stretch to the shortest
  #wanted: readonly Demand[] = []; // the finer series that were asked for last
  #asking: AbortController | null = null;
  #asked = "";
  #awaiting = false; // a finer series of the stretch in sight
  #redraw: ReturnType<typeof setTimeout> | undefined;
  #refetch: ReturnType<typeof setTimeout> | undefined;
  #finer: ReturnType<typeof setTimeout> | undefined;
  #late: ReturnType<typeof setTimeout> | undefined;
  #lastDrawn = 0;
  #lastMoved = 0;
  #parts: readonly LayerPart[] = [];
  #bestPoints: PlotContent["rings"] = [];
  readonly #ends: (() => void)[];

  constructor(view: ChartView, subject: ChartSubject) {
    this.view = view;
    this.#subject = signal(subject);
    this.#ends = [
      feed().follow(this),
      effect(() => {
        const { axis, smooth, superseded } = view;
        void [axis.value, smooth.value, superseded.value];
        untracked(() => this.#load());
      }),
      effect(() => {
        void [view.groupBy.value, view.spread.value, theme.value, this.#looks.value];
        untracked(() => this.#restyle());
      }),
      effect(() => {
        void [view.range.value, view.extents.value, view.logX.value, view.logY.value, view.clip.value];
        untracked(() => this.#moved());
      }),
    ];
  }

  /** The lines in sight; unlike `content`, the same for as long as nothing but the stretch in sight changes. */
  get lines(): ReadonlySignal<readonly StyledTrace[]> {
    return this.#lines;
  }
  /** What the plot shows; null as long as nothing has arrived. */
  get content(): ReadonlySignal<PlotContent | null> {
    return this.#content;
  }
  get status(): ReadonlySignal<ChartStatus> {
    return this.#status;
  }
  get axis(): Axis {
    return this.view.axis.value;
  }
  /** The lines in sight: the finest that cover it. */
  get styled(): readonly StyledTrace[] {
    return this.#parts[this.view.range.value && this.#parts.length > 1 ? 1 : 0]?.traces ?? NO_TRACES;
  }
  get subject(): ChartSubject {
    return this.#subject.peek();
  }
  /** The grid and demand of what is in sight. */
  get set(): TraceSet | null {
    return this.#details[0] ?? this.#overview;
  }

  setSubject(subject: ChartSubject): void {
    if (subject === this.#subject.peek()) return;
    this.#subject.value = subject;
    this.#load();
    this.#restyle();
  }

  /** How many pixel columns the chart is wide. */
  setPoints(points: number): void {
    const rounded = Math.min(4000, Math.max(50, Math.ceil(points / 20) * 20));
    if (rounded === this.#points) return;
    this.#points = rounded;
    this.#load();
  }

  setShown(shown: boolean): void {
    this.#shown = shown;
    this.#load();
    if (shown) this.#draw();
  }

  dispose(): void {
    for (const end of this.#ends) end();
    this.#asking?.abort();
    clearTimeout(this.#redraw);
    clearTimeout(this.#refetch);
    clearTimeout(this.#finer);
    clearTimeout(this.#late);
    this.view.extents.set(this, null);
  }

  // What the feed asks and tells.

  keys(): readonly string[] {
    return this.#overview?.demand.keys ?? [];
  }
  traces(): readonly Trace[] {
    return [...(this.#overview?.traces ?? []), ...this.#details.flatMap((set) => set.traces)];
  }
  grown(): void {
    if (this.#overview?.traces.some((trace) => trace.overgrown > OVERGROWN)) this.stale();
    const wait = this.#lastDrawn + REDRAW_EVERY - performance.now();
    if (wait <= 0) this.#redrawNow();
    else this.#redraw ??= setTimeout(() => this.#redrawNow(), wait);
  }
  stale(): void {
    this.#refetch ??= setTimeout(() => {
      this.#refetch = undefined;
      this.#asked = "";
      this.#overviewStale = true;
      this.#load();
    }, REFETCH_EVERY);
  }

  /**
   * The rows closest to a place, exactly as they were logged, where a column in sight stands for many; null where the
   * lines in sight are exact themselves.
   */
  async exactAt(x: number, signal: AbortSignal): Promise<readonly StyledTrace[] | null> {
    const thinned = this.set?.traces.filter((trace) => !trace.exact && trace.rowsPerColumn > 1) ?? [];
    if (!thinned.length || groupsOf(this.subject, this.view).length) return null;
    const reach = 3 * Math.max(...thinned.map((trace) => trace.columnWidth / trace.rowsPerColumn));
    const demand = { ...this.#demand({ min: x - reach, max: x + reach }), points: EXACT_POINTS };
    const set = await feed().fetch(demand, signal);
    return set.traces.some((trace) => trace.exact && trace.length) ? styledTraces(set, this.subject, this.view) : null;
  }

  #redrawNow(): void {
    clearTimeout(this.#redraw);
    this.#redraw = undefined;
    this.#lastDrawn = performance.now();
    this.#restyle(true);
  }

  #demand(range: Range | null): Demand {
    const { runs, baselines = [], keys } = this.subject;
    const { axis, smooth, superseded } = this.view;
    return {
      runs,
      beside: baselines,
      keys,
      axis: axis.value,
      alpha: alphaOf(smooth.value),
      superseded: superseded.value,
      points: this.#points,
      range,
    };
  }

  /** Fetches what is not there yet of what is to be shown. */
  #load(): void {
    this.#dropForeign();
    if (!this.#shown || !this.#points) return;
    const { runs, keys } = this.subject;
    if (!runs.length || !keys.length) {
      this.#overview = null;
      this.#details = [];
      this.#status.value = "empty";
      this.#restyle();
      return;
    }
    const whole = this.#demand(null);
    const finer = this.#finerRanges().map((range) => this.#demand(range));
    const name = JSON.stringify([whole, finer]);
    if (name === this.#asked) return;
    this.#asked = name;
    this.#asking?.abort();
    const asking = new AbortController();
    this.#asking = asking;
    const wanted: Promise<TraceSet>[] = [];
    const same = !this.#overviewStale && this.#overview && isSame(this.#overview.demand, whole);
    if (!same) wanted.push(feed().fetch(whole, asking.signal));
    for (const demand of finer) wanted.push(feed().fetch(demand, asking.signal));
    this.#wanted = finer;
    this.#awaiting = finer.length > 0;
    if (!finer.length) {
      this.#details = [];
      if (same) {
        this.#setReady();
        this.#restyle();
      }
    }
    for (const request of wanted) {
      request.then(
        (set) => {
          if (!asking.signal.aborted) this.#take(set);
        },
        (error: unknown) => {
          if (!asking.signal.aborted) this.#fail(error);
        },
      );
    }
  }

  /**
   * Series on another axis are not shown any more, nor, of a chart that is not in sight, those of other runs: they would
   * only stretch the x axis of all charts.
   */
  #dropForeign(): void {
    const before = this.#overview?.demand;
    if (!before) return;
    const { runs, baselines = [], keys } = this.subject;
    const sameSubject =
      JSON.stringify([before.runs, before.beside, before.keys]) === JSON.stringify([runs, baselines, keys]);
    if (before.axis === this.axis && (sameSubject || this.#shown)) return;
    this.#overview = null;
    this.#details = [];
    this.#asked = "";
    this.#status.value = "loading";
    this.#restyle();
  }

  /**
   * The stretches for which finer series are fetched: the one in sight; on a log axis also its beginning, again and
   * again, since half of the axis may be the first hundredth of the rows.
   */
  #finerRanges(): Range[] {
    const range = this.view.range.value;
    const ranges = range ? [range] : [];
    const all = range ?? this.view.extents.value;
    if (!this.view.logX.value || !all || !this.#overview?.traces.some((trace) => !trace.exact)) return ranges;
    for (let piece = 1; piece <= LOG_PIECES; piece++) {
      const max = all.max / LOG_RATIO ** piece;
      if (max > all.min * 2 && max > 2) ranges.push({ min: all.min, max });
    }
    return ranges;
  }

  #take(set: TraceSet): void {
    const again = this.#overviewStale;
    if (set.demand.range) {
      const others = this.#details.filter(
        ({ demand }) => !isSame(demand, set.demand) && this.#wanted.some((wanted) => isSame(demand, wanted)),
      );
      this.#details = [...others, set].sort((a, b) => spanOf(b) - spanOf(a));
      this.#awaiting = false;
    } else if (this.#overview !== set) {
      this.#overview = set;
      this.#overviewStale = false;
      if (this.view.logX.value) queueMicrotask(() => this.#load());
      feed().refollow();
    }
    this.#setReady();
    this.#restyle(again);
  }

  #setReady(): void {
    this.#status.value = this.#overview && !this.#overview.traces.length ? "empty" : "ready";
  }

  #fail(error: unknown): void {
    this.#asked = "";
    this.#awaiting = false;
    this.#status.value = { problem: error instanceof Error ? error.message : String(error) };
    this.#draw();
  }

  /** The range has changed: finer series are fetched as soon as the hand rests. */
  #moved(): void {
    if (!isHandsOn()) {
      this.#load();
      // Lines that come in a moment are worth one frame instead of two; else what is there is shown until they come.
      if (this.#awaiting) this.#late ??= setTimeout(() => this.#draw(), WORTH_WAITING);
      else this.#draw();
      return;
    }
    this.#draw();
    this.#lastMoved = performance.now();
    this.#finer ??= setTimeout(() => this.#loadFiner(), FINER_AFTER);
  }

  #loadFiner(): void {
    const left = this.#lastMoved + FINER_AFTER - performance.now();
    this.#finer = left > 1 ? setTimeout(() => this.#loadFiner(), left) : undefined;
    if (left <= 1) this.#load();
  }

  /** `grown`: nothing but rows was added. */
  #restyle(grown = false): void {
    const parts: LayerPart[] = [];
    if (this.#overview)
      parts.push({ traces: styledTraces(this.#overview, this.subject, this.view), from: null, to: null });
    for (const detail of this.#details) {
      parts.push({ traces: styledTraces(detail, this.subject, this.view), from: detail.grid.from, to: detail.grid.to });
    }
    this.#parts = parts;
    this.#bestPoints = this.#rings();
    this.#lines.value = this.styled;
    batch(() => {
      const own = this.#overview?.traces.filter(({ run }) => this.subject.runs.includes(run)); // and no baseline
      const extent = own ? xRange(own, this.view.logX.value) : null;
      this.view.extents.set(this, extent && fromZero(extent, this.axis, this.view.logX.value), grown);
      this.#draw();
    });
  }

  #draw(): void {
    clearTimeout(this.#late);
    this.#late = undefined;
    const x = this.view.range.value ?? this.view.extents.value;
    if (!x || !this.#parts.length) {
      if (!this.#overview?.traces.length) this.#content.value = null;
      return;
    }
    this.#content.value = {
      parts: this.#parts,
      lines: this.styled,
      x: this.view.logX.value && x.min <= 0 ? { min: Math.min(1, x.max / 1000), max: x.max } : x,
      kind: kindOf(this.axis),
      logX: this.view.logX.value,
      logY: this.view.logY.value,
      clip: this.view.clip.value,
      rings: this.#bestPoints,
      resumes: this.view.superseded.value,
      awaiting: this.#awaiting,
    };
  }

  #rings(): PlotContent["rings"] {
    const best = groupsOf(this.subject, this.view).length ? null : bestPoint(this.styled, this.subject.keys);
    return best?.trace.best ? [{ x: best.trace.best[0], y: best.trace.best[1], colour: best.colour }] : [];
  }
}

function isSame(a: Demand, b: Demand): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

function spanOf({ grid }: TraceSet): number {
  return grid.to - grid.from;
}

/** Counts begin at 0, where the first row is not far from it; times of day do not. */
function fromZero(extent: Range, axis: Axis, log: boolean): Range {
  if (log || axis === "wall time" || extent.min <= 0) return extent;
  return extent.min < NEAR_ZERO * extent.max ? { ...extent, min: 0 } : extent;
}
