/** The source of a report: every question is answered from what the file holds. */
import type { SeriesAnswer } from "../series";
import { type SeriesQuery, type Source, SourceError, type TableQuery } from "../source";
import type { Axis, BoardInfo, CheckpointDetail, EventPage, RowCurve, RunMetrics, RunSizes } from "../types";
import type { ReportData, RunPart } from "./contents";
import { type Grid, HeldLine } from "./held-line";
import { HeldTable } from "./run-table";

const NOT_HERE = 404;
const NOT_IN_A_REPORT = 501;
const WITH_A_SERVER = "linnet board --web";

const COLUMNS = 600; // of a chart of middling width
export class EmbeddedSource implements Source {
  readonly live = false;
  readonly #data: ReportData;
  readonly #runs: ReadonlyMap<string, RunPart>;
  readonly #table: HeldTable;
  readonly #lines = new Map<string, HeldLine | null>();
  readonly #files = new Map<string, { column: number; mime: string }>();
  readonly #addresses = new Map<string, string>();

  constructor(data: ReportData) {
    this.#data = data;
    for (const run of data.contents.runs) asOfNow(run, data.contents.made);
    this.#runs = new Map(data.contents.runs.map((run) => [run.id, run]));
    this.#table = new HeldTable(data.contents, (run, key, step) => this.#rowValue(run, key, step));
    for (const { run, number, column, mime } of data.contents.files)
      this.#files.set(`${run} ${number}`, { column, mime });
  }

  async board(): Promise<BoardInfo> {
    return this.#data.contents.board;
  }
  async table(query: TableQuery) {
    return this.#table.answer(query);
  }
  async curves(runs: readonly string[]): Promise<RowCurve[]> {
    return runs.flatMap((id) => this.#runs.get(id)?.curve ?? []);
  }
  async sizes(): Promise<RunSizes> {
    return {};
  }
  run = async (id: string) => this.#run(id).detail;
  async metrics(runs: readonly string[]): Promise<RunMetrics[]> {
    const held = runs.flatMap((id) => this.#runs.get(id) ?? []);
    return held.map(({ id, detail: { metrics, axes, settings } }) => ({ id, metrics, axes, settings }));
  }

  async series(query: SeriesQuery): Promise<SeriesAnswer> {
    const lines = this.#linesOf(query);
    if (!query.runs.some((id) => this.#runs.has(id)))
      throw new SourceError("none of these runs is in this report", NOT_HERE);
    const grid = gridOf(lines, query);
    const series = lines.map((line) => line.within(grid, query.alpha ?? 1));
    return { axis: query.axis, ...grid, dx: (grid.to - grid.from) / grid.points, series };
  }

  samples = async (id: string) => this.#part(id, "samples");
  notes = async (id: string) => this.#part(id, "notes");
  log = async (id: string) => this.#part(id, "log");
  checkpoints = async (id: string) => this.#part(id, "checkpoints");
  artifacts = async (id: string) => this.#part(id, "artifacts");
  evaluations = async (id: string) => this.#part(id, "evaluations");
  profile = async (id: string) => this.#part(id, "profile");
  flow = async (id: string) => this.#part(id, "flow");

  async checkpoint(id: string, step: number): Promise<CheckpointDetail> {
    const run = this.#run(id);
    const inside = run.inside.find(({ checkpoint }) => checkpoint.step === step);
    if (inside) return inside;
    const problem = run.problems[`checkpoint ${step}`];
    throw new SourceError(
      problem ??
        `a report holds what is in the best and the latest checkpoint; of this one: linnet inspect ${id}@${step}`,
      NOT_HERE,
    );
  }
  async tensor(): Promise<never> {
    throw new SourceError(
      `how the numbers of a tensor are spread is read from the GGUF file: ${WITH_A_SERVER}`,
      NOT_IN_A_REPORT,
    );
  }

  inside = noInside;
  insideMap = noInside;
  insideHistograms = noInside;
  insideRegions = noInside;
  insideTokens = noInside;
  insideSimilarity = noInside;
  insideResults = noInside;
  attention = noInside;

  holds = (id: string, number: number) => this.#files.has(`${id} ${number}`);
  /** An address within this page; empty for a file that is not in the report. */
  artifactAddress(id: string, number: number): string {
    const name = `${id} ${number}`;
    const file = this.#files.get(name);
    if (!file) return "";
    const known = this.#addresses.get(name);
    if (known !== undefined) return known;
    const address = URL.createObjectURL(new Blob([this.#data.file(file.column)], { type: file.mime }));
    this.#addresses.set(name, address);
    return address;
  }
  async artifactText(id: string, number: number): Promise<string> {
    const file = this.#files.get(`${id} ${number}`);
    if (!file) throw new SourceError("this file is not in the report", NOT_HERE);
    return new TextDecoder().decode(this.#data.file(file.column));
  }

  async events(): Promise<EventPage> {
    throw new SourceError(`a report holds no stream of events: ${WITH_A_SERVER}`, NOT_IN_A_REPORT);
  }
  changes(): () => void {
    return () => {};
  }
  change = readOnly;
  addNote = readOnly;
  remove = readOnly;
  restore = readOnly;

  /**
   * How many steps a point stands for where a zoom is finer than what the report holds; 0 where it holds all that there
   * is to see.
   */
  coarseness(runs: readonly string[], axis: Axis, range: { min: number; max: number }): number {
    const keys = runs.flatMap((id) => this.#runs.get(id)?.series.map(({ key }) => key) ?? []);
    const grid: Grid = { from: range.min, to: range.max, points: COLUMNS };
    const lines = this.#linesOf({ runs, keys: [...new Set(keys)], axis, points: COLUMNS });
    return Math.max(0, ...lines.map((line) => line.coarseness(grid)));
  }

  #run(id: string): RunPart {
    const run = this.#runs.get(id);
    if (!run) throw new SourceError(`this report does not hold the run ${id}`, NOT_HERE);
    return run;
  }

  #part<K extends keyof RunPart>(id: string, part: K): RunPart[K] {
    const run = this.#run(id);
    const problem = run.problems[part];
    if (problem !== undefined) throw new SourceError(problem, NOT_HERE);
    return run[part];
  }

  /** The last value at or before a step of a run that got there, as the server has it; of null, the first of all. */
  #rowValue(run: RunPart, key: string, step: number | null): number | null | undefined {
    const series = run.series.find((one) => one.key === key && !one.superseded && one.inherited === null);
    if (!series?.rows || (step !== null && !((run.detail.row.step ?? -1) >= step))) return null;
    if (series.grid) return undefined;
    const steps = this.#data.numbers(series.rows.step);
    const after = step === null ? 1 : steps.findIndex((one) => one > step);
    return this.#data.numbers(series.rows.value)[(after < 0 ? steps.length : after) - 1] ?? null;
  }

  #linesOf({ runs, keys, axis, superseded, inherited }: SeriesQuery): HeldLine[] {
    return runs.flatMap((id) => {
      const run = this.#runs.get(id);
      if (!run) return [];
      const wanted = run.series.filter(
        (series) =>
          keys.includes(series.key) &&
          (superseded || !series.superseded) &&
          (series.inherited === null || (inherited && axis === "step")),
      );
      return wanted.flatMap((series) => this.#line(run, series, axis) ?? []);
    });
  }

  #line(run: RunPart, series: RunPart["series"][number], axis: Axis): HeldLine | null {
    const name = JSON.stringify([run.id, series.key, series.superseded, series.inherited, axis]);
    const known = this.#lines.get(name);
    if (known !== undefined) return known;
    const line = HeldLine.on(axis, this.#data, run.id, series, run.detail.row.created);
    this.#lines.set(name, line);
    return line;
  }
}

/** Ages go on while a report lies about; whatever trained when it was made may have ended since. */
function asOfNow({ detail: { row } }: RunPart, made: number): void {
  row.age += Math.max(0, Date.now() / 1000 - made);
  if (row.status === "live") row.warning ??= "still training when this report was made";
}

async function noInside(): Promise<never> {
  throw new SourceError(`a report does not hold what was seen inside a training: ${WITH_A_SERVER}`, NOT_IN_A_REPORT);
}

async function readOnly(): Promise<never> {
  throw new SourceError("a report cannot be changed", NOT_IN_A_REPORT);
}

/** The range that was asked for; where an end is open, up to the first or last row of all. */
function gridOf(lines: readonly HeldLine[], query: SeriesQuery): Grid {
  const spans = lines.map(({ facts }) => facts.span);
  const from = query.from ?? (spans.length ? Math.min(...spans.map(([first]) => first)) : 0);
  const last = query.to ?? (spans.length ? Math.max(...spans.map(([, end]) => end)) : from);
  return { from, to: last > from ? last : from + 1, points: query.points };
}
