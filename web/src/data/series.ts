/** The binary form in which series travel (see `SeriesHeader` in types.ts), decoded without copying the numbers. */
import type { SeriesEntry, SeriesHeader } from "./types";

export type ColumnName = SeriesEntry["columns"][number];
export type Column = Float64Array | Float32Array;

/** One metric of one run on the grid of its answer. */
export interface Series extends Omit<SeriesEntry, "columns" | "offset"> {
  /** `x`, `value`, … of exact series (float64), `low`, `high`, `mean`, … of buckets (float32; NaN in an empty one). */
  columns: Partial<Record<ColumnName, Column>>;
}

export interface SeriesAnswer extends Omit<SeriesHeader, "series"> {
  series: Series[];
  /** Of a grid of buckets: where each begins, and one more for the end. */
  dx: number;
}

const MAGIC = 0x31534e4c; // "LNS1", little-endian
const PREAMBLE = 8; // bytes: the magic and the length of the header

export function decodeSeries(buffer: ArrayBuffer): SeriesAnswer {
  const view = new DataView(buffer);
  if (buffer.byteLength < PREAMBLE || view.getUint32(0, true) !== MAGIC) {
    throw new Error("these are no series: they do not begin with LNS1");
  }
  const length = view.getUint32(4, true);
  const start = PREAMBLE + length;
  if (start > buffer.byteLength) throw new Error("the series are cut off within their header");
  const header: SeriesHeader = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, PREAMBLE, length)));
  const series = header.series.map((entry) => decodeEntry(buffer, start, entry));
  return { ...header, series, dx: header.points > 0 ? (header.to - header.from) / header.points : 0 };
}

function decodeEntry(buffer: ArrayBuffer, start: number, entry: SeriesEntry): Series {
  const { columns: names, offset, ...rest } = entry;
  const kind = entry.exact ? Float64Array : Float32Array;
  const columns: Partial<Record<ColumnName, Column>> = {};
  let position = start + offset;
  for (const name of names) {
    const end = position + entry.rows * kind.BYTES_PER_ELEMENT;
    if (end > buffer.byteLength) throw new Error(`the series ${entry.key} of ${entry.run} is cut off`);
    // Where the server padded differently a copy keeps the reader right.
    columns[name] =
      position % kind.BYTES_PER_ELEMENT === 0
        ? new kind(buffer, position, entry.rows)
        : new kind(buffer.slice(position, end));
    position = end;
  }
  return { ...rest, columns };
}
