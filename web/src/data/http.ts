/** The source that asks the server of `linnet board --web`. */
import { followChanges } from "./live";
import { decodeSeries, type SeriesAnswer } from "./series";
import {
  type ChangesListener,
  type ChangesQuery,
  type MapQuery,
  type SeriesQuery,
  type Source,
  SourceError,
  type TableQuery,
} from "./source";
import type {
  ArtifactSeries,
  AttentionMap,
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
  InsideTokens,
  LogEntry,
  Note,
  OpTiming,
  Problem,
  RowCurve,
  RunChange,
  RunDetail,
  RunMetrics,
  RunRow,
  RunSizes,
  RunTable,
  Sample,
  TensorHistogram,
} from "./types";

export type QueryValue = string | number | boolean | readonly (string | number)[] | undefined;

/** A query string: lists as a parameter repeated, empty and absent values left out. */
export function queryString(values: Record<string, QueryValue>): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === "" || value === false) continue;
    for (const single of Array.isArray(value) ? value : [value])
      params.append(name, single === true ? "1" : String(single));
  }
  const text = params.toString();
  return text ? `?${text}` : "";
}

const CURVES_AT_ONCE = 200;
const TABLE_SECONDS = 1.5; // for reading streams before an answer that is not complete

export class HttpSource implements Source {
  readonly live = true;

  /** `base`: where the API is, with a slash at the end; relative to the page. */
  constructor(readonly base = "api/") {}

  board = (signal?: AbortSignal) => this.#get<BoardInfo>("board", {}, signal);
  table = (query: TableQuery, signal?: AbortSignal) =>
    this.#get<RunTable>(
      "runs",
      {
        where: query.where,
        columns: query.columns.join(","),
        sort: query.sort,
        reverse: query.reverse,
        group: query.group,
        hidden: query.hidden,
        seconds: TABLE_SECONDS,
      },
      signal,
    );
  async curves(runs: readonly string[], signal?: AbortSignal): Promise<RowCurve[]> {
    const parts: Promise<RowCurve[]>[] = [];
    for (let first = 0; first < runs.length; first += CURVES_AT_ONCE) {
      parts.push(this.#get("curves", { runs: runs.slice(first, first + CURVES_AT_ONCE) }, signal));
    }
    return (await Promise.all(parts)).flat();
  }
  async sizes(runs: readonly string[], signal?: AbortSignal): Promise<RunSizes> {
    const sizes: RunSizes = {};
    for (let first = 0; first < runs.length; first += CURVES_AT_ONCE) {
      const part = { runs: runs.slice(first, first + CURVES_AT_ONCE) };
      Object.assign(sizes, await this.#get<RunSizes>("sizes", part, signal));
    }
    return sizes;
  }
  run = (id: string, signal?: AbortSignal) => this.#get<RunDetail>(this.#of(id), {}, signal);
  metrics = (runs: readonly string[], signal?: AbortSignal) => this.#get<RunMetrics[]>("metrics", { runs }, signal);
  async series(query: SeriesQuery, signal?: AbortSignal): Promise<SeriesAnswer> {
    const answer = await this.#ask(`series${queryString({ ...query })}`, signal ? { signal } : {});
    return decodeSeries(await answer.arrayBuffer());
  }
  samples = (id: string, signal?: AbortSignal) => this.#get<Sample[]>(this.#of(id, "samples"), {}, signal);
  notes = (id: string, signal?: AbortSignal) => this.#get<Note[]>(this.#of(id, "notes"), {}, signal);
  log = (id: string, signal?: AbortSignal) => this.#get<LogEntry[]>(this.#of(id, "log"), {}, signal);
  checkpoints = (id: string, signal?: AbortSignal) => this.#get<Checkpoint[]>(this.#of(id, "checkpoints"), {}, signal);
  checkpoint = (id: string, step: number, signal?: AbortSignal) =>
    this.#get<CheckpointDetail>(this.#of(id, "checkpoints", step), {}, signal);
  tensor = (id: string, step: number, name: string, signal?: AbortSignal) =>
    this.#get<TensorHistogram>(this.#of(id, "checkpoints", step, "tensor"), { name }, signal);
  artifacts = (id: string, signal?: AbortSignal) => this.#get<ArtifactSeries[]>(this.#of(id, "artifacts"), {}, signal);
  holds = () => true;
  artifactAddress = (id: string, number: number) => this.base + this.#of(id, "artifacts", number);
  async artifactText(id: string, number: number, signal?: AbortSignal): Promise<string> {
    return (await this.#ask(this.#of(id, "artifacts", number), signal ? { signal } : {})).text();
  }
  evaluations = (id: string, signal?: AbortSignal) => this.#get<Evaluation[]>(this.#of(id, "evaluations"), {}, signal);
  profile = (id: string, signal?: AbortSignal) => this.#get<OpTiming[]>(this.#of(id, "profile"), {}, signal);
  flow = (id: string, signal?: AbortSignal) => this.#get<unknown>(this.#of(id, "flow"), {}, signal);
  inside = (id: string, signal?: AbortSignal) => this.#get<InsideInfo>(this.#of(id, "inside"), {}, signal);
  insideMap = (id: string, query: MapQuery, signal?: AbortSignal) =>
    this.#get<InsideMap>(this.#of(id, "inside", "map"), { ...query }, signal);
  insideHistograms: Source["insideHistograms"] = (id, query, signal) =>
    this.#get<InsideHistograms>(this.#of(id, "inside", "histograms"), { ...query }, signal);
  insideRegions = (id: string, step: number | undefined, signal?: AbortSignal) =>
    this.#get<InsideRegions>(this.#of(id, "inside", "regions"), { step }, signal);
  insideTokens = (id: string, step: number | undefined, signal?: AbortSignal) =>
    this.#get<InsideTokens>(this.#of(id, "inside", "tokens"), { step }, signal);
  insideSimilarity: Source["insideSimilarity"] = (id, query, signal) =>
    this.#get<InsideSimilarity>(this.#of(id, "inside", "similarity"), { ...query }, signal);
  insideResults = (id: string, signal?: AbortSignal) =>
    this.#get<InsideResult[]>(this.#of(id, "inside", "results"), {}, signal);
  attention: Source["attention"] = (id, question, signal) =>
    this.#write<AttentionMap>("POST", this.#of(id, "attention"), question, signal);
  events = (id: string, after: number, limit: number, signal?: AbortSignal) =>
    this.#get<EventPage>(this.#of(id, "events"), { after, limit }, signal);

  changes(query: () => ChangesQuery, listener: ChangesListener): () => void {
    return followChanges(() => {
      const { axes, ...asked } = query();
      return `${this.base}changes${queryString({ ...asked, axis: axes })}`;
    }, listener);
  }

  change = (id: string, change: RunChange) => this.#write<RunRow>("PATCH", this.#of(id), change);
  addNote = (id: string, text: string, step?: number) =>
    this.#write<Note>("POST", this.#of(id, "notes"), step === undefined ? { text } : { text, step });
  remove = (id: string) => this.#write<{ bytes: number }>("DELETE", this.#of(id));
  restore = (id: string) => this.#write<RunRow>("POST", this.#of(id, "restore"));

  #of(id: string, ...parts: (string | number)[]): string {
    return ["runs", encodeURIComponent(id), ...parts].join("/");
  }

  async #get<T>(path: string, query: Record<string, QueryValue>, signal?: AbortSignal): Promise<T> {
    const address = path + queryString(query);
    const early = window.linnetAsked?.get(address); // by early.ts
    window.linnetAsked?.delete(address);
    const answered = await early?.catch(() => undefined);
    if (answered !== undefined) return answered as T;
    const answer = await this.#ask(address, signal ? { signal } : {});
    return answer.json() as Promise<T>;
  }

  async #write<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
    const headers: Record<string, string> = { "X-Linnet": "1" };
    const content: RequestInit = {};
    if (body !== undefined) {
      headers["Content-Type"] = "application/json";
      content.body = JSON.stringify(body);
    }
    const answer = await this.#ask(path, { method, headers, ...content, ...(signal ? { signal } : {}) });
    return answer.json() as Promise<T>;
  }

  async #ask(path: string, request: RequestInit): Promise<Response> {
    let answer: Response;
    try {
      answer = await fetch(this.base + path, { credentials: "same-origin", ...request });
    } catch (error) {
      if (request.signal?.aborted) throw error;
      throw new SourceError("the server of the board does not answer; start it again: linnet board --web", 0);
    }
    if (answer.ok) return answer;
    throw new SourceError(await problemOf(answer), answer.status);
  }
}

async function problemOf(answer: Response): Promise<string> {
  try {
    const problem: Partial<Problem> = await answer.json();
    if (typeof problem.error === "string") return problem.error;
  } catch {
    // no JSON: a proxy's page, or nothing at all
  }
  return `the server answered ${answer.status} ${answer.statusText}`.trim();
}
