// What travels between the server and the page. docs/web-api.md and board/web/openapi.json describe the same.

/** Statuses as everywhere: live, completed, interrupted, aborted, errored, crashed, stalled, gone. */
export type Status = "live" | "completed" | "interrupted" | "aborted" | "errored" | "crashed" | "stalled" | "gone";
export type Goal = "min" | "max" | null;
export type Axis = "step" | "tokens" | "epoch" | "wall time" | "relative time";
/** NaN and infinities travel as the texts "nan", "inf", "-inf". */
export type Figure = number | "nan" | "inf" | "-inf" | null;

/** GET api/board */
export interface BoardInfo {
  root: string; // as shown to people, with ~
  version: string;
  writable: boolean; // names, tags, notes, hiding, deleting are allowed
  chosen: string[]; // runs named on the command line
}

/** One row of GET api/runs?where=&columns=&sort=&reverse=&group=&hidden=&seconds=  (whole table, light; order is the answer's). */
export interface RunRow {
  id: string;
  name: string; // shown: the name, else the id
  status: Status;
  step: number | null;
  total_steps: number | null;
  metric: string | null; // the main metric
  last: Figure;
  created: number; // Unix seconds
  seconds: number; // of training
  age: number; // seconds since its last event
  recipe: string | null;
  experiment: string | null;
  group: string | null;
  parent: string | null;
  compare_to: string | null; // its baseline, whose lines charts show faintly
  tags: string[];
  hidden: boolean; // archived
  colour: number; // 0..11, stays with the run
  warning: string | null; // "NaN at 812", "stalled", what is wrong with the folder
  values: (string | number | boolean | null)[]; // one for each of RunTable.columns
}
export interface ColumnInfo {
  term: string; // as typed: "lr", "best(loss)", "loss@200"
  label: string;
  kind: "field" | "setting" | "metric";
  goal: Goal;
  numeric: boolean;
}
export interface RunTable {
  position: string; // opaque; changes when the table does
  total: number; // runs in the folder, hidden ones left out
  columns: ColumnInfo[];
  rows: RunRow[];
  groups: { key: string; first: number; count: number; live: number; best: Figure }[]; // when group= is given
  settings: string[]; // that may be asked for as columns
  metrics: string[];
  unread: number; // runs whose figures, which it is filtered, ordered or shown by, there was no time to read: ask again
  problem: string | null; // what is wrong with `where`, in words; then nothing is filtered
}

/** GET api/curves?runs=a&runs=b  (of rows on the screen, at most 200): what needs whole streams. Those that were read in time; ask again for the rest. */
export interface RowCurve {
  id: string;
  best: Figure;
  best_step: number | null;
  spark: Figure[]; // at most 48 values of the main metric
}

/**
 * GET api/sizes?runs=a&runs=b  (at most 200): bytes on disk by run, for the question before runs are deleted; runs
 * that are gone are left out.
 */
export type RunSizes = Record<string, number>;

/** GET api/runs/{id} */
export interface RunDetail {
  row: RunRow;
  manifest: Record<string, unknown>; // run.json as it is
  settings: Record<string, unknown>; // config and model, flattened: "model.d_model"
  defaults: Record<string, unknown>; // what the recipe sets when nothing is asked for, named as in `settings`; empty where that is not known
  chosen: Record<string, unknown>; // what `auto` became
  plan: Record<string, unknown>;
  end: Record<string, unknown> | null;
  metrics: MetricInfo[];
  axes: Axis[];
  elapsed: number;
  remaining: number | null;
  tokens_per_second: number | null;
  family: { ancestors: { id: string; step: number | null }[]; children: string[] };
  path: string;
  damaged: number;
  has: {
    samples: boolean;
    checkpoints: boolean;
    artifacts: boolean;
    flow: boolean;
    system: boolean;
    profile: boolean;
    classes: boolean;
    inside: boolean;
    attention: boolean;
  }; // inside: it was looked into, analysis commands kept something, or attention: it has a checkpoint of a language model; profile: an op_timing event; classes: an eval with per_class or confusion
}
export interface MetricInfo {
  key: string;
  goal: Goal;
  rows: number;
  last: Figure;
  last_step: number | null;
  best: Figure;
  best_step: number | null;
  low: Figure;
  high: Figure;
  constant: boolean;
  held_out_of: string | null; // "loss" for "validation/loss": drawn on that chart
}

/** GET api/metrics?runs=a&runs=b: what charts of these runs there are, in one answer (RunMetrics[], in the order asked; runs that are gone are left out). */
export interface RunMetrics {
  id: string;
  metrics: MetricInfo[];
  axes: Axis[];
  settings: Record<string, unknown>; // as in RunDetail
}

/**
 * GET api/series?runs=…&keys=…&from=&to=&points=&axis=&alpha=&superseded=&inherited=&beside=…   (binary)
 * bytes: "LNS1", uint32 LE length of the header, the header (JSON, padded with spaces to a multiple of 8), columns.
 * Every series of an answer lies on the same grid of `points` columns from `from` to `to`; a column is [from + i·dx, from + (i+1)·dx).
 */
export interface SeriesHeader {
  axis: Axis;
  from: number;
  to: number;
  points: number;
  series: SeriesEntry[];
}
export interface SeriesEntry {
  run: string;
  key: string;
  goal: Goal;
  superseded: boolean; // rows that a later resume replaced: with superseded=1 an entry of its own beside that of the run
  inherited: string | null; // with inherited=1 a fork has, by step, an entry for each run it came from, with the rows up to where it began; that run
  // every row is there, and one before and after the range: columns x, value(, smooth, step), float64. Else buckets: low, high, mean(, smooth), float32
  exact: boolean;
  rows: number; // rows of the answer
  total: number; // rows of the series in the range
  offset: number; // bytes from the end of the header
  columns: ("x" | "value" | "step" | "low" | "high" | "mean" | "smooth")[];
  position: number; // rows of the whole series so far; the stream of changes goes on from there
  ema: [number, number] | null; // numerator and weight at the end, to smooth what comes after
  last: [number, Figure] | null; // x, value
  best: [number, number] | null; // x, value, within the whole series
  resumes: number[]; // x at which the run was resumed
  marks: { x: number; kind: "nan" | "spike" | "stall" | "warning"; text: string }[];
}

/** GET api/runs/{id}/samples */
export interface Sample {
  step: number | null;
  t: number;
  prompt: string;
  text: string;
}
/** GET api/runs/{id}/notes */
export interface Note {
  t: number;
  step: number | null;
  at: string;
  text: string;
}
/** GET api/runs/{id}/log */
export interface LogEntry {
  t: number;
  step: number | null;
  level: "info" | "warning" | "error";
  text: string;
}
/** GET api/runs/{id}/checkpoints */
export interface Checkpoint {
  step: number;
  path: string; // relative to the run
  bytes: number;
  train_loss: Figure;
  validation_loss: Figure;
  tokens: number | null;
  best: boolean;
  latest: boolean;
  commands: string[]; // that run it: linnet generate …, llama-cli -m …
}
/** GET api/runs/{id}/checkpoints/{step} */
export interface CheckpointDetail {
  checkpoint: Checkpoint;
  metadata: { key: string; type: string; value: string }[]; // long arrays in short
  tensors: { name: string; shape: number[]; type: string; bytes: number }[];
}
/** GET api/runs/{id}/checkpoints/{step}/tensor?name= */
export interface TensorHistogram {
  name: string;
  counts: number[];
  edges: number[];
  mean: Figure;
  std: Figure;
  min: Figure;
  max: Figure;
  zeros: number;
  nonfinite: number;
}
/** GET api/runs/{id}/artifacts; the content of one: GET api/runs/{id}/artifacts/{number} (download, or an image by <img>) */
export interface ArtifactSeries {
  name: string;
  media: "image" | "table" | "histogram" | "text" | "audio" | "file";
  items: {
    number: number;
    step: number | null;
    t: number;
    bytes: number | null;
    mime: string;
    caption: string | null;
    inline: boolean;
    fields: Record<string, unknown>;
  }[];
}
/** GET api/runs/{id}/evaluations: `eval` events by step, superseded ones left out; at most the latest 500. */
export interface Evaluation {
  step: number | null;
  t: number;
  name: string; // "validation"
  samples: number | null;
  figures: Record<string, Figure>; // loss, accuracy …
  per_class: Record<string, Figure> | null; // of a classifier: the accuracy of each class
  confusion: { labels: string[]; counts: number[][] } | null; // counts[label][guess]
}
/** GET api/runs/{id}/profile: `op_timing` events, the latest last; the trace itself is the artifact profile.json.gz. */
export interface OpTiming {
  step: number | null;
  t: number;
  compute_us: number;
  buckets: Record<string, number>;
}
/** GET api/runs/{id}/flow: flow.json as it is. GET api/runs/{id}/system: latest and history of the machine's figures are series `sys/…`. */
/** GET api/runs/{id}/inside: what a training with --inspect told of its inside. `looks`: taps, grads, drift, gram, tokens, regions, ops. */
export type InsideTable = "taps" | "grads" | "drift";
export interface InsideInfo {
  looks: Record<string, { count: number; first: number; last: number }>;
  tables: Partial<Record<InsideTable, LoggedFigures[]>>;
  grams: { name: string; layers: number[] }[];
}
/** A region or a tensor; layers are none outside the blocks. */
export interface LoggedFigures {
  name: string;
  layers: number[];
  figures: string[];
  head_figures: string[];
  histogram: boolean;
}
export interface MapRow {
  name: string;
  layer: number | null;
  head: number | null;
  label: string;
}
/** GET api/runs/{id}/inside/map?table=&figure=&name=&layer=&heads=&columns= */
export interface InsideMap {
  figure: string;
  rows: MapRow[];
  begins: number[]; // first step of each column
  ends: number[];
  values: Figure[][]; // by row, then column; of several looks the one that stands out most; null: not told
  low: Figure[][] | null; // where columns have several looks
  high: Figure[][] | null;
  looks: number;
  left_out: number; // rows
}
/** GET api/runs/{id}/inside/histograms?name=&layer=&step=&rows= */
export interface InsideHistograms {
  row: MapRow;
  histograms: InsideHistogram[];
  looks: number;
}
export interface InsideHistogram {
  step: number;
  low: Figure;
  high: Figure;
  counts: number[];
}
/** GET api/runs/{id}/inside/regions?step= (microseconds) */
export interface InsideRegions {
  steps: number[];
  step: number;
  root: Region;
}
export interface Region {
  name: string;
  path: string;
  begin_us: number;
  us: number;
  own_us: number; // that none of its children took
  children: Region[];
}
/** GET api/runs/{id}/inside/tokens?step= */
export interface InsideTokens {
  steps: number[];
  step: number;
  token_id: number[];
  freq: number[];
  cos_to_init: Figure[];
  l2_to_init: Figure[];
}
/** GET api/runs/{id}/inside/similarity?name=&step=&layer=: CKA of layers at a step; with `layer`, of that one between the steps. */
export interface InsideSimilarity {
  name: string;
  layer: number | null;
  step: number | null;
  steps: number[];
  labels: string[];
  samples: number;
  values: Figure[][];
}
/** GET api/runs/{id}/inside/results: what `linnet cka|lmc|drift|lens-words|attention --record` kept; `numbers`: what --json prints. */
export interface InsideResult {
  kind: "cka" | "lmc" | "drift" | "lens-words" | "attention";
  step: number | null;
  text: string;
  picture: number | null; // of the artifact
  numbers: Record<string, unknown> | null;
}
/** POST api/runs/{id}/attention {prompt, step?, layer?} */
export interface AttentionMap {
  step: number;
  tokens: string[];
  layers: number[];
  layer: number;
  heads: number[][][]; // by head, query, key
}

/** GET api/runs/{id}/events?after=POSITION&limit= */
export interface EventPage {
  position: number;
  events: Record<string, unknown>[];
  more: boolean;
}

/**
 * GET api/changes?runs=…&keys=…&axis=…&positions=…&watch=…&columns=   (server-sent events)
 * axis: on which rows are told; each that is given.
 * positions: one for each run and key, all keys of the first run first, as SeriesEntry.position told; without, from now on.
 * watch: runs besides, without series, of which `run` is told.
 * columns: as for api/runs, those that `values` of the rows have; without, `values` is empty.
 *   event: runs   data: {position, rows: RunRow[], gone: string[]}      rows of the table that changed or are new
 *   event: series data: SeriesChange
 *   event: run    data: {id, parts: ("metrics"|"samples"|"notes"|"log"|"checkpoints"|"artifacts"|"inside"|"manifest"|"status")[]}
 *   "metrics": a key that the run did not have, or one that is no longer constant
 *   a comment line every 15 s keeps it alive.
 */
export interface SeriesChange {
  run: string;
  key: string;
  axis: Axis;
  position: number;
  x: number[];
  value: Figure[];
  again: boolean; // too much or not in order (a resume, a cut stream): ask for the series anew
}

/** Writes carry the header `X-Linnet: 1`. PATCH api/runs/{id} RunChange → RunRow; POST api/runs/{id}/notes {text, step?}; DELETE api/runs/{id} → {bytes}; POST api/runs/{id}/restore. */
export interface RunChange {
  name?: string;
  add_tags?: string[];
  remove_tags?: string[];
  hidden?: boolean;
}
/** Every error: HTTP status and {error: text for people}. */
export interface Problem {
  error: string;
}
