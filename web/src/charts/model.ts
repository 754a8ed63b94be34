/** `ChartModel`: the series of one chart: which are fetched, how they are drawn, what is said of them. */
import { batch, computed, effect, type ReadonlySignal, type Signal, signal, untracked } from "@preact/signals";
import { changes, known, nameOf, paintOf, source, token } from "../data/state";
import type { Axis } from "../data/types";
import { type Demand, type Follower, SeriesFeed, type TraceSet } from "./feed";
import { isHandsOn } from "./frames";
import type { LayerPart } from "./layer";
import type { StyledTrace } from "./paint";
import type { PlotContent } from "./plot";
import { type Range, xRange } from "./range";
import { kindOf } from "./scale";
import { groupRuns, meanTrace, type RunGroup } from "./spread";
import type { Trace } from "./trace";
import { alphaOf, type ChartView } from "./view";

/** What a chart is of. */
export interface ChartSubject {
  readonly runs: readonly string[];
  /** The metric of the chart, and those drawn with it. */
  readonly keys: readonly string[];
  /** Of these, what is measured on held-out data: dashed. */
  readonly heldOut: ReadonlySet<string>;
  /** For groups: what each run was set to. */
  readonly settings: ReadonlyMap<string, Readonly<Record<string, unknown>>>;
}

export type ChartStatus = "loading" | "ready" | "empty" | { readonly problem: string };

const REDRAW_EVERY = 90; // milliseconds, while rows arrive
const REFETCH_EVERY = 1000; // milliseconds, while rows arrive that do not fit
const OVERGROWN = 0.12; // share of the grid that may be added before the series is fetched anew
const FINER_AFTER = 50; // milliseconds after the last move of a pan
const LOG_PIECES = 3;
const LOG_RATIO = 16;
const NEAR_ZERO = 0.05; // of the axis
const EXACT_POINTS = 200; // more rows than stand beside a place
const NO_TRACES: readonly StyledTrace[] = [];

let theFeed: SeriesFeed | null = null;

function feed(): SeriesFeed {
  if (theFeed) return theFeed;
  const live = computed(() => [...known.value.values()].filter((row) => row.status === "live").map((row) => row.id));
  const started = new SeriesFeed(source, changes, (run) => known.peek().get(run)?.status === "live");
  theFeed = started;
  const names = computed(() => live.value.join("\n"));
  effect(() => {
    void names.value;
    started.refollow();
  });
  return started;
}

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
  #redraw: ReturnType<typeof setTimeout> | undefined;
  #refetch: ReturnType<typeof setTimeout> | undefined;
  #finer: ReturnType<typeof setTimeout> | undefined;
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
        void [view.groupBy.value, view.spread.value, token("panel"), this.#looks.value];
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
    if (!thinned.length || this.view.groupBy.value) return null;
    const reach = 3 * Math.max(...thinned.map((trace) => trace.columnWidth / trace.rowsPerColumn));
    const demand = { ...this.#demand({ min: x - reach, max: x + reach }), points: EXACT_POINTS };
    const set = await feed().fetch(demand, signal);
    return set.traces.some((trace) => trace.exact && trace.length) ? this.#styledOf(set) : null;
  }

  #redrawNow(): void {
    clearTimeout(this.#redraw);
    this.#redraw = undefined;
    this.#lastDrawn = performance.now();
    this.#restyle(true);
  }

  #demand(range: Range | null): Demand {
    const { runs, keys } = this.subject;
    const { axis, smooth, superseded } = this.view;
    return {
      runs,
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
    const overview = same && this.#overview ? Promise.resolve(this.#overview) : feed().fetch(whole, asking.signal);
    wanted.push(overview);
    for (const demand of finer) wanted.push(feed().fetch(demand, asking.signal));
    this.#wanted = finer;
    if (!finer.length) this.#details = [];
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
    } else if (this.#overview !== set) {
      this.#overview = set;
      this.#overviewStale = false;
      if (this.view.logX.value) queueMicrotask(() => this.#load());
      feed().refollow();
    }
    this.#status.value = this.#overview && !this.#overview.traces.length ? "empty" : "ready";
    this.#restyle(again);
  }

  #fail(error: unknown): void {
    this.#asked = "";
    this.#status.value = { problem: error instanceof Error ? error.message : String(error) };
  }

  /** The range has changed: finer series are fetched as soon as the hand rests. */
  #moved(): void {
    this.#draw();
    if (!isHandsOn()) {
      this.#load();
      return;
    }
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
    if (this.#overview) parts.push({ traces: this.#styledOf(this.#overview), from: null, to: null });
    for (const detail of this.#details) {
      parts.push({ traces: this.#styledOf(detail), from: detail.grid.from, to: detail.grid.to });
    }
    this.#parts = parts;
    this.#bestPoints = this.#rings();
    this.#lines.value = this.styled;
    batch(() => {
      const extent = this.#overview && xRange(this.#overview.traces, this.view.logX.value);
      this.view.extents.set(this, extent && fromZero(extent, this.axis, this.view.logX.value), grown);
      this.#draw();
    });
  }

  #draw(): void {
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
    };
  }

  #styledOf(set: TraceSet): StyledTrace[] {
    const { keys, heldOut, settings } = this.subject;
    const groupBy = this.view.groupBy.value;
    if (groupBy) {
      const groups = groupRuns(this.subject.runs, settings, groupBy);
      return keys.flatMap((key) => groups.flatMap((group, at) => this.#meanOf(set, key, group, at)));
    }
    const several = keys.length > 1 && keys.some((key) => !heldOut.has(key) && key !== keys[0]);
    return set.traces.map((trace) => ({
      trace,
      label: keyLabel(nameOf(trace.run), trace, several, heldOut),
      colour:
        keys.length > 1 && this.subject.runs.length === 1 && several
          ? paint(keys.indexOf(trace.key))
          : paintOf(trace.run),
      dashed: heldOut.has(trace.key) && keys.length > 1,
      spread: false,
    }));
  }

  #meanOf(set: TraceSet, key: string, group: RunGroup, at: number): StyledTrace[] {
    const members = set.traces.filter(
      (trace) => trace.key === key && !trace.superseded && group.runs.includes(trace.run),
    );
    if (!members.length) return [];
    const { heldOut, keys } = this.subject;
    const [only] = group.runs;
    return [
      {
        trace: meanTrace(members, group, set.grid, this.view.spread.value),
        label: `${group.label}${group.runs.length > 1 ? ` (${group.runs.length})` : ""}${
          heldOut.has(key) && keys.length > 1 ? ", held out" : ""
        }`,
        colour: group.runs.length === 1 && only ? paintOf(only) : paint(at),
        dashed: heldOut.has(key) && keys.length > 1,
        spread: group.runs.length > 1,
      },
    ];
  }

  #rings(): PlotContent["rings"] {
    const best = this.view.groupBy.value ? null : bestPoint(this.styled, this.subject.keys);
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

/** The trace that has the best value of a metric. */
export function bestOf(styled: readonly StyledTrace[], key: string): StyledTrace | null {
  let best: StyledTrace | null = null;
  for (const candidate of styled) {
    const { trace } = candidate;
    if (trace.key !== key || !trace.best || trace.goal === null || trace.superseded) continue;
    const value = trace.best[1];
    const other = best?.trace.best?.[1];
    if (other === undefined || (trace.goal === "min" ? value < other : value > other)) best = candidate;
  }
  return best;
}

/** The trace that has the best point of a chart: of held-out figures, which are what counts, where there are some. */
export function bestPoint(styled: readonly StyledTrace[], keys: readonly string[]): StyledTrace | null {
  for (const key of [...keys.slice(1), ...keys.slice(0, 1)]) {
    const best = bestOf(styled, key);
    if (best) return best;
  }
  return null;
}

function paint(at: number): string {
  return token(`c${(at % 12) + 1}`);
}

function keyLabel(run: string, trace: Trace, several: boolean, heldOut: ReadonlySet<string>): string {
  const replaced = trace.superseded ? ", replaced" : "";
  if (several) return `${run} · ${trace.key}${replaced}`;
  return `${run}${heldOut.has(trace.key) ? " · held out" : ""}${replaced}`;
}
