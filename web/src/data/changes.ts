/** The one stream of changes of a page: whoever shows series says which, and everybody hears what concerns them. */
import { signal } from "@preact/signals";
import type { ChangesQuery, RunEvent, RunsEvent, Source } from "./source";
import type { SeriesChange } from "./types";

type Listener<T> = (event: T) => void;
/** `opening`: nothing has arrived yet; `lost`: it did, and the server does not answer any more. */
export type Connection = "opening" | "open" | "lost";

/** The series that a page shows. */
export type Interest = Omit<ChangesQuery, "watch">;

const NOTHING: Interest = { runs: [], keys: [], axes: [], positions: [] };
const REOPEN_AFTER = 50; // milliseconds: charts of one page ask one after the other

export class Changes {
  readonly connection = signal<Connection>("opening");
  readonly #runs = new Set<Listener<RunsEvent>>();
  readonly #series = new Set<Listener<SeriesChange>>();
  readonly #run = new Set<Listener<RunEvent>>();
  readonly #reconnect = new Set<() => void>();
  readonly #newlyWatched = new Set<Listener<readonly string[]>>();
  readonly #watched = new Map<string, number>();
  #interest: () => Interest = () => NOTHING;
  #source: Source | null = null;
  #close: (() => void) | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #asked: readonly string[] = []; // runs of the stream that is opened
  #heard: ReadonlySet<string> = new Set(); // runs of the stream that was open last

  start(source: Source): void {
    this.#source = source;
    this.#open();
  }

  /**
   * Which series are shown now. `interest` is asked whenever the stream is opened, so that positions are those of that
   * moment; call `follow` again when runs, keys or axes change. The function it gives ends the interest.
   */
  follow(interest: () => Interest): () => void {
    this.#interest = interest;
    this.#reopen();
    return () => {
      if (this.#interest !== interest) return;
      this.#interest = () => NOTHING;
      this.#reopen();
    };
  }

  /** Runs of which `onRun` shall tell, besides those whose series are followed. The function it gives ends that. */
  watch(runs: readonly string[]): () => void {
    const count = (by: number) => {
      const before = this.#query().watch.join("\n");
      for (const run of runs) {
        const watchers = (this.#watched.get(run) ?? 0) + by;
        if (watchers > 0) this.#watched.set(run, watchers);
        else this.#watched.delete(run);
      }
      if (this.#query().watch.join("\n") !== before) this.#reopen();
    };
    count(1);
    return () => count(-1);
  }

  /** Rows of the table that changed. Each of these gives the function that ends it. */
  onRuns = (listener: Listener<RunsEvent>) => subscribe(this.#runs, listener);
  onSeries = (listener: Listener<SeriesChange>) => subscribe(this.#series, listener);
  onRun = (listener: Listener<RunEvent>) => subscribe(this.#run, listener);
  /** The server answers again after it was gone: whatever is shown may be old. */
  onReconnect = (listener: () => void) => subscribe(this.#reconnect, listener);

  /** Runs that are watched and have no series stand apart, for each run of series has a position a key. */
  #query(): ChangesQuery {
    const query = this.#interest();
    return { ...query, watch: [...this.#watched.keys()].filter((run) => !query.runs.includes(run)) };
  }

  /** The stream tells of these runs from now on; what was asked before may have missed something. */
  onWatched = (listener: Listener<readonly string[]>) => subscribe(this.#newlyWatched, listener);

  #reopen(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(), REOPEN_AFTER);
  }

  #open(): void {
    if (!this.#source?.live) return;
    this.#close?.();
    const query = () => {
      const asked = this.#query();
      this.#asked = [...asked.runs, ...asked.watch];
      return asked;
    };
    this.#close = this.#source.changes(query, {
      runs: (event) => tell(this.#runs, event),
      series: (event) => tell(this.#series, event),
      run: (event) => tell(this.#run, event),
      connected: (open) => this.#connected(open),
    });
  }

  #connected(open: boolean): void {
    const back = open && this.connection.peek() === "lost";
    this.connection.value = open ? "open" : "lost";
    if (open) {
      const added = this.#asked.filter((run) => !this.#heard.has(run));
      this.#heard = new Set(this.#asked);
      if (added.length) tell(this.#newlyWatched, added);
    }
    if (!back) return;
    for (const listener of this.#reconnect) listener();
  }
}

function subscribe<T>(listeners: Set<T>, listener: T): () => void {
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
  };
}

function tell<T>(listeners: Set<Listener<T>>, event: T): void {
  for (const listener of [...listeners]) listener(event);
}
