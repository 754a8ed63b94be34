/**
 * `SeriesFeed`: fetches series for charts and keeps them up to date.
 *
 * Charts that ask for the same runs and stretch in one moment share a request. Live rows are added to what is there; a
 * series is fetched anew only where rows cannot be added.
 */
import type { Changes, Interest } from "../data/changes";
import type { SeriesAnswer } from "../data/series";
import type { SeriesQuery, Source } from "../data/source";
import type { Axis, SeriesChange } from "../data/types";
import { asNumber } from "../words";
import { withJoints } from "./inherited";
import { type Grid, Trace } from "./trace";

/** What a chart wants. `range` null: all of it. */
export interface Demand {
  readonly runs: readonly string[];
  /** Runs whose lines go as far as those of the others. */
  readonly beside: readonly string[];
  readonly keys: readonly string[];
  readonly axis: Axis;
  readonly alpha: number;
  readonly superseded: boolean;
  readonly points: number;
  readonly range: { readonly min: number; readonly max: number } | null;
}

/** What a chart got: traces on one grid. */
export interface TraceSet {
  readonly demand: Demand;
  readonly grid: Grid;
  readonly traces: readonly Trace[];
}

/** A chart that has series and wants to hear of their growth. */
export interface Follower {
  readonly axis: Axis;
  /** All traces that live rows belong to. */
  traces(): readonly Trace[];
  keys(): readonly string[];
  /** Traces have grown: they are to be drawn again. */
  grown(): void;
  /** Rows could not be added: the series are to be fetched again. */
  stale(): void;
}

interface Waiting {
  readonly demand: Demand;
  readonly signal: AbortSignal;
  resolve(set: TraceSet): void;
  reject(error: unknown): void;
}

const KEPT = 15_000; // milliseconds: rows that arrive while a series is on its way are added to it
const FOLLOW_AFTER = 250; // milliseconds: charts of a page load one after the other

export class SeriesFeed {
  readonly #source: () => Source;
  readonly #changes: Changes;
  readonly #isLive: (run: string) => boolean;
  readonly #followers = new Set<Follower>();
  readonly #recent: { at: number; change: SeriesChange; values: number[] }[] = [];
  #waiting: Waiting[] = [];
  #unanswered = 0; // requests
  #onSettled: (() => void)[] = [];
  #followed = "";
  #endFollow: (() => void) | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(source: () => Source, changes: Changes, isLive: (run: string) => boolean) {
    this.#source = source;
    this.#changes = changes;
    this.#isLive = isLive;
    changes.onSeries((change) => this.#take(change));
    changes.onReconnect(() => {
      for (const follower of this.#followers) follower.stale();
    });
  }

  fetch(demand: Demand, signal: AbortSignal): Promise<TraceSet> {
    return new Promise((resolve, reject) => {
      if (!this.#waiting.length) setTimeout(() => this.#send()); // after all observers of this frame were called
      this.#waiting.push({ demand, signal, resolve, reject });
    });
  }

  /** Sends what charts have asked for in this moment: all of them have heard of what somebody did. */
  flush(): void {
    if (this.#waiting.length) this.#send();
  }

  /** Resolves when nothing that was asked for is on its way any more. */
  settled(): Promise<void> {
    return new Promise((resolve) => {
      this.#onSettled.push(resolve);
      this.#tellSettled();
    });
  }

  #tellSettled(): void {
    if (this.#unanswered || this.#waiting.length) return;
    for (const resolve of this.#onSettled.splice(0)) resolve();
  }

  /** Live rows for a chart; the function it gives ends that. */
  follow(follower: Follower): () => void {
    this.#followers.add(follower);
    this.refollow();
    return () => {
      this.#followers.delete(follower);
      this.refollow();
    };
  }

  /** What is followed may be different now. */
  refollow(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#follow(), FOLLOW_AFTER);
  }

  #send(): void {
    const waiting = this.#waiting.filter(({ signal }) => !signal.aborted);
    this.#waiting = [];
    const groups = groupedBy(waiting, ({ demand }) => withoutKeys(demand));
    for (const group of groups.values()) void this.#ask(group);
    this.#tellSettled(); // all of them may have been given up
  }

  async #ask(group: readonly Waiting[]): Promise<void> {
    const [first] = group;
    if (!first) return;
    const { runs, beside, axis, points, alpha, superseded, range } = first.demand;
    const keys = [...new Set(group.flatMap(({ demand }) => demand.keys))];
    const abort = new AbortController();
    for (const { signal } of group) {
      signal.addEventListener("abort", () => {
        if (group.every((other) => other.signal.aborted)) abort.abort();
      });
    }
    const query: SeriesQuery = { runs, keys, axis, points };
    if (alpha < 1) query.alpha = alpha;
    if (superseded) query.superseded = true;
    if (axis === "step") query.inherited = true; // elsewhere a fork does not count on
    if (beside.length) query.beside = beside;
    if (range) {
      query.from = range.min;
      query.to = range.max;
    }
    this.#unanswered++;
    try {
      const answer = await this.#source().series(query, abort.signal);
      for (const { demand, resolve } of group) resolve(this.#caughtUp(traceSet(answer, demand)));
    } catch (error) {
      for (const { reject } of group) reject(error);
    } finally {
      this.#unanswered--;
      this.#tellSettled();
    }
  }

  #take(change: SeriesChange): void {
    const values = change.value.map(asNumber);
    this.#remember(change, values);
    for (const follower of [...this.#followers]) {
      if (follower.axis !== change.axis) continue;
      let grown = false;
      for (const trace of follower.traces()) {
        if (!isOf(change, trace)) continue;
        const before = trace.version;
        if (change.again || !added(trace, change, values)) {
          follower.stale();
          break;
        }
        grown ||= trace.version !== before;
      }
      if (grown) follower.grown();
    }
  }

  #remember(change: SeriesChange, values: number[]): void {
    const now = performance.now();
    while (this.#recent[0] && now - this.#recent[0].at > KEPT) this.#recent.shift();
    if (!change.again) this.#recent.push({ at: now, change, values });
  }

  /** A series that was on its way while rows arrived gets them too. */
  #caughtUp(set: TraceSet): TraceSet {
    const recent = this.#recent.filter(({ change }) => change.axis === set.demand.axis);
    for (const trace of set.traces) {
      for (const { change, values } of recent) if (isOf(change, trace)) added(trace, change, values);
    }
    return set;
  }

  #follow(): void {
    const query = this.#interest();
    const name = JSON.stringify([query.runs, query.keys, query.axes]);
    if (name === this.#followed) return;
    this.#followed = name;
    this.#endFollow?.();
    this.#endFollow = query.runs.length && query.keys.length ? this.#changes.follow(() => this.#interest()) : null;
  }

  #interest(): Interest {
    const axes = new Set<Axis>();
    const positions = new Map<string, number>();
    const runs = new Set<string>();
    const keys = new Set<string>();
    for (const follower of this.#followers) {
      axes.add(follower.axis);
      for (const key of follower.keys()) keys.add(key);
      for (const trace of follower.traces()) {
        if (!this.#isLive(trace.run) || !trace.grows) continue;
        runs.add(trace.run);
        const name = `${trace.run}\n${trace.key}`;
        positions.set(name, Math.min(trace.position, positions.get(name) ?? Number.POSITIVE_INFINITY));
      }
    }
    const all = [...runs].flatMap((run) => [...keys].map((key) => positions.get(`${run}\n${key}`) ?? 0));
    return { runs: [...runs], keys: [...keys], axes: [...axes], positions: all };
  }
}

function isOf(change: SeriesChange, trace: Trace): boolean {
  return trace.run === change.run && trace.key === change.key && trace.grows;
}

/** Adds the rows of a change that a trace does not have yet; false where some before them are missing. */
function added(trace: Trace, change: SeriesChange, values: readonly number[]): boolean {
  const known = trace.position - (change.position - values.length);
  if (known < 0) return false;
  return known >= values.length || trace.append(change.x.slice(known), values.slice(known), change.position);
}

function withoutKeys({ runs, beside, axis, alpha, superseded, points, range }: Demand): string {
  return JSON.stringify([runs, beside, axis, alpha, superseded, points, range]);
}

function groupedBy<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return groups;
}

/** What a fork inherits lies below its own line. */
function below(trace: Trace): number {
  return trace.inherited === null ? 1 : 0;
}

function traceSet(answer: SeriesAnswer, demand: Demand): TraceSet {
  const grid: Grid = { from: answer.from, to: answer.to, points: answer.points };
  const keys = new Set(demand.keys);
  const order = new Map([...demand.beside, ...demand.runs].map((run, at) => [run, at]));
  const traces = answer.series
    .filter((series) => keys.has(series.key))
    .map((series) => new Trace(series, grid, demand.alpha))
    .sort((a, b) => (order.get(a.run) ?? 0) - (order.get(b.run) ?? 0) || below(a) - below(b));
  return { demand, grid, traces: withJoints(traces, demand.runs) };
}
