// Which figure of which rows is shown: what the address says, as far as the run was looked at for it.
import { choice, flag, number, pageParam, text } from "../../address";
import type { InsideInfo, InsideTable, LoggedFigures, MapRow } from "../../data/types";

export const TABLES: Record<InsideTable, string> = {
  taps: "activations",
  grads: "gradients and updates",
  drift: "distance from the start",
};
/** What is told in words, where the name alone says little. */
export const FIGURES: Record<string, string> = {
  mean: "mean",
  std: "standard deviation",
  l2: "length (L2)",
  abs_mean: "mean size",
  min: "least",
  max: "greatest",
  abs_max: "greatest size",
  sparsity: "share of zeros",
  nan_count: "numbers that are not finite",
  effective_rank: "effective rank",
  entropy: "entropy of attention, nats",
  dead: "share of dead units",
  update_ratio: "update by weight",
  cos_to_init: "cosine to the first weights",
  l2_to_init: "distance from the first weights",
};
const USUAL: Record<InsideTable, readonly string[]> = {
  taps: ["std", "l2"],
  grads: ["update_ratio", "l2"],
  drift: ["l2_to_init"],
};
const RESIDUAL = "resid_post_block";
const ROWS_AT_ONCE = 120; // of all names together, where none is chosen
/** All rows, whatever their name. */
export const ALL = "*";

export const tableParam = pageParam("of", choice("taps", "grads", "drift"), "taps");
export const figureParam = pageParam("figure", text, "");
export const nameParam = pageParam("region", text, "");
export const layerParam = pageParam("layer", number, -1);
export const headsParam = pageParam("heads", flag, false);
export const formParam = pageParam("scale", choice("auto", "linear", "log"), "auto");
export const rowByRowParam = pageParam("byrow", flag, false);
export const rowParam = pageParam("row", text, "");

export interface MapChoice {
  table: InsideTable;
  figure: string;
  name: string; // or ALL
  layer: number | null;
  heads: boolean;
}

/** What is shown of what was asked for: what there is not becomes what one looks at first. Null: no table was told. */
export function mapChoice(info: InsideInfo, asked: MapChoice): MapChoice | null {
  const tables = (Object.keys(TABLES) as InsideTable[]).filter((name) => info.tables[name]?.length);
  const table = tables.includes(asked.table) ? asked.table : tables[0];
  const regions = table && info.tables[table];
  if (!regions) return null;
  const heads = asked.heads && regions.some((region) => region.head_figures.length > 0);
  const figuresOf = (region: LoggedFigures) => (heads ? region.head_figures : region.figures);
  const all = [...new Set(regions.flatMap(figuresOf))];
  const figure = all.includes(asked.figure) ? asked.figure : (USUAL[table].find((one) => all.includes(one)) ?? all[0]);
  if (figure === undefined) return null;
  const names = regions.filter((region) => figuresOf(region).includes(figure));
  const known = names.find(({ name }) => name === asked.name);
  const layered = names.filter(({ layers }) => layers.length > 0);
  const rows = names.reduce((sum, { layers }) => sum + Math.max(1, layers.length), 0);
  const first = table === "taps" ? (names.find(({ name }) => name === RESIDUAL) ?? layered[0]) : undefined;
  const usual = rows <= ROWS_AT_ONCE || table === "taps" ? (first?.name ?? ALL) : (layered[0]?.name ?? ALL);
  const name = asked.name === ALL ? ALL : (known?.name ?? usual);
  const layers = layersOf(names, name);
  const layer = asked.layer !== null && layers.includes(asked.layer) ? asked.layer : null;
  return { table, figure, name, layer: heads && layer === null ? (layers[0] ?? null) : layer, heads };
}

/** The layers of the regions, or tensors, of a name. */
export function layersOf(regions: readonly LoggedFigures[], name: string): number[] {
  const layers = regions.filter((region) => name === ALL || region.name === name).flatMap((region) => region.layers);
  return [...new Set(layers)].sort((a, b) => a - b);
}

/** A row in the address: it stays the same one when others are shown beside it. */
export function rowKey({ name, layer, head }: Pick<MapRow, "name" | "layer" | "head">): string {
  return [name, layer ?? "", head ?? ""].join(";").replace(/;+$/, "");
}

/** Rows of the address, for `rowKey`. */
export function rowAt(rows: readonly MapRow[], key: string): number {
  return Math.max(
    0,
    rows.findIndex((row) => rowKey(row) === key),
  );
}

/** The column that a step lies in: the last one that began by then; the last of all without a step. */
export function columnAt(begins: readonly number[], step: number | null): number {
  if (step === null) return begins.length - 1;
  return Math.max(
    0,
    begins.findLastIndex((begin) => begin <= step),
  );
}
