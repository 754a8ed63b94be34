/** What a report holds, and how it lies in its file; docs/report.md describes the form. */
import type {
  ArtifactSeries,
  Axis,
  BoardInfo,
  Checkpoint,
  CheckpointDetail,
  Evaluation,
  Goal,
  LogEntry,
  Note,
  OpTiming,
  RowCurve,
  RunDetail,
  RunTable,
  Sample,
  SeriesEntry,
} from "../types";

export interface AxisFacts extends Pick<SeriesEntry, "last" | "best" | "resumes" | "marks"> {
  /** The least and the greatest x of the series. */
  span: [number, number];
}

/** Numbers are those of columns. */
export interface HeldRows {
  first: number; // of the rows of the whole series
  step: number;
  value: number;
  x: Partial<Record<Axis, number>>;
}
export interface HeldGrid {
  from: number;
  to: number;
  points: number;
  low: number;
  high: number;
  mean: number;
  count: number;
  x: Partial<Record<Axis, number>>;
}
export interface HeldSeries {
  key: string;
  goal: Goal;
  superseded: boolean;
  inherited: string | null; // the ancestor of a fork whose rows these are
  total: number;
  axes: Partial<Record<Axis, AxisFacts>>;
  rows: HeldRows | null;
  grid: HeldGrid | null;
}

export interface RunPart {
  id: string;
  detail: RunDetail;
  curve: RowCurve | null;
  samples: Sample[];
  notes: Note[];
  log: LogEntry[];
  checkpoints: Checkpoint[];
  inside: CheckpointDetail[];
  artifacts: ArtifactSeries[];
  evaluations: Evaluation[];
  profile: OpTiming[];
  flow: unknown;
  series: HeldSeries[];
  problems: Record<string, string>;
}

export interface ColumnEntry {
  kind: "f8" | "f4" | "i4" | "bytes";
  offset: number;
  rows: number;
  base?: number;
  scale?: number;
}

export interface LeftOut {
  run: string | null;
  part: string;
  bytes: number | null;
  chosen: boolean; // whoever made the report did not want it
}

export interface Contents {
  made: number; // Unix seconds
  version: string;
  machine: string;
  title: string;
  theme: "light" | "dark" | null;
  points: number;
  board: BoardInfo;
  table: RunTable;
  runs: RunPart[];
  files: { run: string; number: number; column: number; mime: string }[];
  left_out: LeftOut[];
  columns: ColumnEntry[];
}

const MAGIC = 0x31524e4c; // "LNR1", little-endian
const PREAMBLE = 8; // bytes: the magic and the length of the head

/** A report's data as it was written: its head, and the columns of numbers that the head names. */
export class ReportData {
  readonly contents: Contents;
  readonly #body: Uint8Array<ArrayBuffer>;
  readonly #numbers = new Map<number, Float64Array | Float32Array>();

  constructor(buffer: ArrayBuffer) {
    const view = new DataView(buffer);
    if (buffer.byteLength < PREAMBLE || view.getUint32(0, true) !== MAGIC) {
      throw new Error("this is no report: its data does not begin with LNR1");
    }
    const end = PREAMBLE + view.getUint32(4, true);
    if (end > buffer.byteLength) throw new Error("this report is cut off");
    this.contents = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, PREAMBLE, end - PREAMBLE)));
    this.#body = new Uint8Array(buffer, end);
  }

  /** The numbers of a column; read once. */
  numbers(column: number): Float64Array | Float32Array {
    const known = this.#numbers.get(column);
    if (known) return known;
    const read = this.#read(this.#entry(column));
    this.#numbers.set(column, read);
    return read;
  }

  /** A file, as bytes. */
  file(column: number): Uint8Array<ArrayBuffer> {
    const { offset, rows } = this.#entry(column);
    return this.#body.slice(offset, offset + rows);
  }

  #entry(column: number): ColumnEntry {
    const entry = this.contents.columns[column];
    if (!entry) throw new Error("this report is damaged: a column of it is missing");
    return entry;
  }

  #read({ kind, offset, rows, base = 0, scale = 1 }: ColumnEntry): Float64Array | Float32Array {
    if (kind === "f4") return new Float32Array(this.#together(offset, rows, 4));
    if (kind === "f8") return new Float64Array(this.#together(offset, rows, 8));
    const differences = new Int32Array(this.#together(offset, rows, 4));
    const values = new Float64Array(rows);
    let now = 0;
    for (let row = 0; row < rows; row++) {
      now += differences[row] ?? 0;
      values[row] = base + scale * now;
    }
    return values;
  }

  /** The bytes of numbers, which lie apart by their significance, put together again. */
  #together(offset: number, rows: number, width: number): ArrayBuffer {
    const bytes = new Uint8Array(rows * width);
    for (let significance = 0; significance < width; significance++) {
      const from = offset + significance * rows;
      for (let row = 0; row < rows; row++) bytes[row * width + significance] = this.#body[from + row] ?? 0;
    }
    return bytes.buffer;
  }
}

/** Data as it stands in the file: compressed, in base 64. */
export async function unpacked(text: string): Promise<ArrayBuffer> {
  if (typeof DecompressionStream === "undefined") {
    throw new Error("this browser is too old for reports: it cannot decompress data (any of 2023 can)");
  }
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at++) bytes[at] = letters.charCodeAt(at);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}
