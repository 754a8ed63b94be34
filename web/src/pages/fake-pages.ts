/** A source with made runs and all that their pages ask for, for tests. */
import { FakeSource, type MadeRun } from "../charts/fake-source";
import type { MapQuery } from "../data/source";
import type {
  ArtifactSeries,
  BoardInfo,
  Checkpoint,
  CheckpointDetail,
  Evaluation,
  InsideInfo,
  InsideMap,
  InsideResult,
  LogEntry,
  Note,
  OpTiming,
  RunDetail,
  Sample,
  TensorHistogram,
} from "../data/types";

export interface MadePages {
  detail?: Partial<RunDetail>;
  samples?: Sample[];
  notes?: Note[];
  log?: LogEntry[];
  checkpoints?: Checkpoint[];
  artifacts?: ArtifactSeries[];
  contents?: Record<number, string>;
  evaluations?: Evaluation[];
  profile?: OpTiming[];
  flow?: unknown;
  inside?: InsideInfo;
  insideMap?: InsideMap;
  insideResults?: InsideResult[];
}

const NOTHING = {
  samples: false,
  checkpoints: false,
  artifacts: false,
  flow: false,
  system: false,
  profile: false,
  classes: false,
  inside: false,
  attention: false,
};

export class FakePages extends FakeSource {
  readonly written: string[] = [];

  constructor(
    runs: readonly MadeRun[],
    readonly pages: Record<string, MadePages> = {},
  ) {
    super(runs);
  }

  override async board(): Promise<BoardInfo> {
    return { ...(await super.board()), writable: true };
  }

  async run(id: string): Promise<RunDetail> {
    const row = (await this.table()).rows.find((one) => one.id === id);
    const [metrics] = await this.metrics([id]);
    if (!row || !metrics) throw new Error(`there is no run ${id}`);
    const made = this.pages[id] ?? {};
    return {
      row,
      manifest: {},
      settings: metrics.settings,
      defaults: {},
      chosen: {},
      plan: {},
      end: null,
      metrics: metrics.metrics,
      axes: metrics.axes,
      elapsed: 100,
      remaining: null,
      tokens_per_second: null,
      family: { ancestors: [], children: [] },
      path: `~/runs/${id}`,
      damaged: 0,
      ...made.detail,
      has: {
        ...NOTHING,
        ...Object.fromEntries(Object.keys(NOTHING).map((name) => [name, name in made])),
        ...made.detail?.has,
      },
    };
  }

  samples = async (id: string) => this.pages[id]?.samples ?? [];
  notes = async (id: string) => this.pages[id]?.notes ?? [];
  log = async (id: string) => this.pages[id]?.log ?? [];
  checkpoints = async (id: string) => this.pages[id]?.checkpoints ?? [];
  artifacts = async (id: string) => this.pages[id]?.artifacts ?? [];
  evaluations = async (id: string) => this.pages[id]?.evaluations ?? [];
  profile = async (id: string) => this.pages[id]?.profile ?? [];
  flow = async (id: string) => this.pages[id]?.flow ?? null;
  inside = async (id: string) => this.pages[id]?.inside ?? { looks: {}, tables: {}, grams: [] };
  insideResults = async (id: string) => this.pages[id]?.insideResults ?? [];
  async insideMap(id: string, { figure }: MapQuery): Promise<InsideMap> {
    const map = this.pages[id]?.insideMap;
    if (map?.figure !== figure) throw new Error(`no tap tells ${figure}`);
    return map;
  }
  async insideHistograms(_id: string, { name, step = 0 }: { name: string; step?: number }) {
    const row = { name, layer: null, head: null, label: name };
    return { row, histograms: [{ step, low: -1, high: 1, counts: [1, 6, 1] }], looks: 1 };
  }
  holds = () => true;
  artifactAddress = (id: string, number: number) => `api/runs/${id}/artifacts/${number}`;
  artifactText = async (id: string, number: number) => this.pages[id]?.contents?.[number] ?? "";

  async checkpoint(id: string, step: number): Promise<CheckpointDetail> {
    const checkpoint = this.pages[id]?.checkpoints?.find((one) => one.step === step);
    if (!checkpoint) throw new Error(`there is no checkpoint of step ${step}`);
    return {
      checkpoint,
      metadata: [{ key: "general.architecture", type: "string", value: "llama" }],
      tensors: [{ name: "token_embd.weight", shape: [64, 300], type: "f32", bytes: 76_800 }],
    };
  }

  async tensor(_id: string, _step: number, name: string): Promise<TensorHistogram> {
    return {
      name,
      counts: [1, 4, 2],
      edges: [-1, 0, 1, 2],
      mean: 0.5,
      std: 1,
      min: -1,
      max: 2,
      zeros: 3,
      nonfinite: 0,
    };
  }

  async addNote(_id: string, text: string): Promise<Note> {
    this.written.push(text);
    return { t: 0, step: null, at: "", text };
  }
}

/** Rows of a metric, for `MadeRun.series`. */
export function madeSeries(values: readonly number[], goal: "min" | "max" | null = null) {
  return { x: Float64Array.from(values, (_, index) => index + 1), value: Float64Array.from(values), goal };
}
