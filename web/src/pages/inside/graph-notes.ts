// What was told of a box of the flow graph: the regions it computes, their figures and how long they took.
import type { InsideMap, Region } from "../../data/types";
import { asNumber, number } from "../../words";
import type { FlowItem } from "../run/flow";

/** Regions of activations by the part of a block that computes them, as flow.json and the region tree name parts. */
const OF_PART: Record<string, readonly string[]> = {
  attn_norm: ["attn_norm"],
  attn_qkv: ["attn_q", "attn_k", "attn_v"],
  attn_q: ["attn_q"],
  attn_k: ["attn_k"],
  attn_v: ["attn_v"],
  attn_output: ["attn_out"],
  ffn_norm: ["ffn_norm"],
  ffn_down: ["ffn_out"],
};
/** The same outside the blocks. */
const OUTSIDE: Record<string, readonly string[]> = {
  token_embd: ["embd"],
  patch_embd: ["patch_embd"],
  output_norm: ["output_norm"],
  loss: ["logits"],
  linear: ["logits"],
};
const ATTENTION = "scaled_dot_product_attention";
const BLOCK = /^(?:.*\.)?blocks\.(\d+)$/;
const BLOCK_REGIONS = ["resid_post_block"];

export interface RegionFigure {
  name: string;
  layer: number | null;
  value: number;
}
/** In microseconds; null: not told. */
export interface BoxTimes {
  forward: number | null;
  backward: number | null;
}

/** A figure at a step, by region and layer. */
export function figuresAt(map: InsideMap, column: number): RegionFigure[] {
  return map.rows.flatMap(({ name, layer, head }, row) => {
    const figure = map.values[row]?.[column];
    if (head !== null || figure === null || figure === undefined) return [];
    return [{ name, layer, value: asNumber(figure) }];
  });
}

/** The layers that a box stands for; none outside the blocks. */
export function layersOfBox(item: FlowItem): number[] {
  const layers = item.nodes.flatMap(({ name }) => {
    const block = /^(?:.*\.)?blocks\.(\d+)\./.exec(name);
    return block ? [Number(block[1])] : [];
  });
  return [...new Set(layers)];
}

/** The figures of what a box computes: of a layer that of the residual stream behind it. */
export function figuresOfBox(item: FlowItem, figures: readonly RegionFigure[]): RegionFigure[] {
  const layers = layersOfBox(item);
  const names = regionsOfBox(item);
  return figures.filter(
    ({ name, layer }) => names.includes(name) && (layer === null ? layers.length === 0 : layers.includes(layer)),
  );
}

function regionsOfBox(item: FlowItem): readonly string[] {
  if (BLOCK.test(item.id)) return BLOCK_REGIONS;
  const part = partOf(item);
  return (layersOfBox(item).length ? OF_PART[part] : OUTSIDE[part]) ?? [];
}

/** The part of a block, or of the model, that a box belongs to: `blocks.0.attn_qkv.linear` → `attn_qkv`. */
function partOf(item: FlowItem): string {
  if (item.kind === "group") return item.id;
  const name = (item.nodes[0]?.name ?? item.id).replace(/#\d+$/, "");
  const parts = name.replace(/^(?:.*\.)?blocks\.\d+\./, "").split(".");
  if (parts[0] === ATTENTION) return "attention";
  return parts[0] ?? "";
}

/** How long parts took, forwards and backwards: by `blocks.3` and `blocks.3/attn_qkv`. */
export function timesByPart(root: Region): Record<"forward" | "backward", Map<string, number>> {
  const times = { forward: new Map<string, number>(), backward: new Map<string, number>() };
  const walk = (region: Region, pass: "forward" | "backward" | null, above: string) => {
    const own = pass === null ? "" : above ? `${above}/${region.name}` : region.name;
    if (pass && own) times[pass].set(own, (times[pass].get(own) ?? 0) + region.us);
    const next = pass ?? (region.name === "forward" || region.name === "backward" ? region.name : null);
    for (const child of region.children) walk(child, next, own);
  };
  walk(root, null, "");
  return times;
}

/** How long what a box stands for took; of several layers all of them. */
export function timesOfBox(item: FlowItem, times: ReturnType<typeof timesByPart>): BoxTimes {
  const blocks = layersOfBox(item).map((layer) => `blocks.${layer}`);
  const part = partOf(item);
  const keys = BLOCK.test(item.id) ? blocks : blocks.length ? blocks.map((block) => `${block}/${part}`) : [part];
  const sum = (known: Map<string, number>) => {
    const durations = keys.flatMap((key) => known.get(key) ?? []);
    return durations.length ? durations.reduce((total, us) => total + us, 0) : null;
  };
  // Only the last operation of a part stands for it: its time is told once.
  return { forward: sum(times.forward), backward: sum(times.backward) };
}

/** The second line of a box: its figure, the range of several, and its time. */
export function boxText(figures: readonly RegionFigure[], { forward, backward }: BoxTimes, figure: string): string {
  const values = figures.map(({ value }) => value).filter(Number.isFinite);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const range = values.length ? `${figure} ${number(low, 3)}${high > low ? `…${number(high, 3)}` : ""}` : "";
  const us = (forward ?? 0) + (backward ?? 0);
  return [range, us > 0 ? millis(us) : ""].filter(Boolean).join(" · ");
}

export function millis(us: number): string {
  return us < 1000 ? `${number(us, 3)} µs` : `${number(us / 1000, 3)} ms`;
}
