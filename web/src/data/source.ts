/** Where the pages get their data from: a server, or what a report holds. Nothing else asks for any. */
import type { SeriesAnswer } from "./series";
import type {
  ArtifactSeries,
  AttentionMap,
  Axis,
  BoardInfo,
  Checkpoint,
  CheckpointDetail,
  Evaluation,
  EventPage,
  InsideHistograms,
  InsideInfo,
  InsideMap,
  InsideRegions,
  InsideResult,
  InsideSimilarity,
  InsideTable,
  InsideTokens,
  LogEntry,
  Note,
  OpTiming,
  RowCurve,
  RunChange,
  RunDetail,
  RunMetrics,
  RunRow,
  RunSizes,
  RunTable,
  Sample,
  SeriesChange,
  TensorHistogram,
} from "./types";

export interface TableQuery {
  where: string;
  columns: readonly string[]; // empty: the server's choice
  sort: string;
  reverse: boolean;
  group: string;
  hidden: boolean; // hidden runs too
}

export interface SeriesQuery {
  runs: readonly string[];
  keys: readonly string[];
  axis: Axis;
  points: number;
  from?: number;
  to?: number;
  alpha?: number; // of the exponential mean; left out: no smoothing
  superseded?: boolean;
  inherited?: boolean; // of a fork also the lines of the runs it came from
  beside?: readonly string[]; // runs whose series lie on the grid of the others, as far as those go
}

export interface MapQuery {
  table: InsideTable;
  figure: string;
  name?: string;
  layer?: number;
  heads?: boolean;
  columns?: number;
}

export interface ChangesQuery {
  runs: readonly string[];
  keys: readonly string[];
  axes: readonly Axis[];
  positions: readonly number[]; // for each run, for each key: rows that are known already
  watch: readonly string[]; // runs without series, of whose parts is told
}

export type RunPart =
  | "metrics"
  | "samples"
  | "notes"
  | "log"
  | "checkpoints"
  | "artifacts"
  | "inside"
  | "manifest"
  | "status";
export interface RunsEvent {
  position: string;
  rows: RunRow[];
  gone: string[];
}
export interface RunEvent {
  id: string;
  parts: RunPart[];
}

/** What is told while a page looks on. */
export interface ChangesListener {
  runs(event: RunsEvent): void;
  series(event: SeriesChange): void;
  run(event: RunEvent): void;
  /** True when changes arrive, false when the server cannot be reached. */
  connected(open: boolean): void;
}

/** A request that failed, in words for people. `status`: of HTTP; 0 where no server answered. */
export class SourceError extends Error {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super(message);
    this.name = "SourceError";
  }
}

export interface Source {
  /** Whether runs may go on: false for a report. */
  readonly live: boolean;
  board(signal?: AbortSignal): Promise<BoardInfo>;
  table(query: TableQuery, signal?: AbortSignal): Promise<RunTable>;
  curves(runs: readonly string[], signal?: AbortSignal): Promise<RowCurve[]>;
  /** Bytes on disk of each run. */
  sizes(runs: readonly string[], signal?: AbortSignal): Promise<RunSizes>;
  run(id: string, signal?: AbortSignal): Promise<RunDetail>;
  /** What charts of these runs there are. */
  metrics(runs: readonly string[], signal?: AbortSignal): Promise<RunMetrics[]>;
  series(query: SeriesQuery, signal?: AbortSignal): Promise<SeriesAnswer>;
  samples(id: string, signal?: AbortSignal): Promise<Sample[]>;
  notes(id: string, signal?: AbortSignal): Promise<Note[]>;
  log(id: string, signal?: AbortSignal): Promise<LogEntry[]>;
  checkpoints(id: string, signal?: AbortSignal): Promise<Checkpoint[]>;
  checkpoint(id: string, step: number, signal?: AbortSignal): Promise<CheckpointDetail>;
  tensor(id: string, step: number, name: string, signal?: AbortSignal): Promise<TensorHistogram>;
  artifacts(id: string, signal?: AbortSignal): Promise<ArtifactSeries[]>;
  /** Whether the content of an artifact can be had: a report leaves out what is large. */
  holds(id: string, number: number): boolean;
  /** The address of an artifact's content, for `<img>` and for downloads. */
  artifactAddress(id: string, number: number): string;
  artifactText(id: string, number: number, signal?: AbortSignal): Promise<string>;
  evaluations(id: string, signal?: AbortSignal): Promise<Evaluation[]>;
  profile(id: string, signal?: AbortSignal): Promise<OpTiming[]>;
  /** flow.json as it is. */
  flow(id: string, signal?: AbortSignal): Promise<unknown>;
  /** What a training told of its inside; a report holds none of it. */
  inside(id: string, signal?: AbortSignal): Promise<InsideInfo>;
  insideMap(id: string, query: MapQuery, signal?: AbortSignal): Promise<InsideMap>;
  insideHistograms(
    id: string,
    query: { name: string; layer?: number; step?: number; rows?: number },
    signal?: AbortSignal,
  ): Promise<InsideHistograms>;
  insideRegions(id: string, step: number | undefined, signal?: AbortSignal): Promise<InsideRegions>;
  insideTokens(id: string, step: number | undefined, signal?: AbortSignal): Promise<InsideTokens>;
  insideSimilarity(
    id: string,
    query: { name: string; layer?: number; step?: number },
    signal?: AbortSignal,
  ): Promise<InsideSimilarity>;
  insideResults(id: string, signal?: AbortSignal): Promise<InsideResult[]>;
  attention(
    id: string,
    question: { prompt: string; step?: number; layer?: number },
    signal?: AbortSignal,
  ): Promise<AttentionMap>;
  events(id: string, after: number, limit: number, signal?: AbortSignal): Promise<EventPage>;
  /** Starts to follow changes; the function it gives ends that. `query` is asked at each reconnect, for the positions of then. */
  changes(query: () => ChangesQuery, listener: ChangesListener): () => void;
  change(id: string, change: RunChange): Promise<RunRow>;
  addNote(id: string, text: string, step?: number): Promise<Note>;
  remove(id: string): Promise<{ bytes: number }>;
  restore(id: string): Promise<RunRow>;
}
