import { expect, it } from "vitest";
import type { InsideInfo, InsideMap, LoggedFigures, Region } from "../../data/types";
import { foldFlow, parseFlow } from "../run/flow";
import { masked, meanOf } from "./attention";
import { ALL, columnAt, type MapChoice, mapChoice, rowAt, rowKey } from "./choice";
import { boxText, figuresAt, figuresOfBox, timesByPart, timesOfBox } from "./graph-notes";
import { lineOf, tableOf, visible, wordsOf } from "./results";
import { linePath, ticksOf } from "./row-curve";
import { reach, ridgesOf } from "./spread";
import { regionRows } from "./time";

const logged = (name: string, layers: number[], figures: string[], heads: string[] = []): LoggedFigures => ({
  name,
  layers,
  figures,
  head_figures: heads,
  histogram: true,
});
const info: InsideInfo = {
  looks: {},
  tables: {
    taps: [
      logged("embd", [], ["std", "l2"]),
      logged("attn_q", [0, 1], ["std"], ["l2"]),
      logged("resid_post_block", [0, 1], ["std", "l2"]),
    ],
    grads: Array.from({ length: 9 }, (_, at) =>
      logged(
        `w${at}`,
        Array.from({ length: 30 }, (__, layer) => layer),
        ["l2"],
      ),
    ),
  },
  grams: [],
};
const asked = (changes: Partial<MapChoice> = {}): MapChoice => ({
  table: "taps",
  figure: "",
  name: "",
  layer: null,
  heads: false,
  ...changes,
});

it("shows the residual stream first, and of very many tensors one kind", () => {
  expect(mapChoice(info, asked())).toEqual(asked({ figure: "std", name: "resid_post_block" }));
  expect(mapChoice(info, asked({ table: "grads" }))).toEqual(asked({ table: "grads", figure: "l2", name: "w0" }));
  expect(mapChoice(info, asked({ table: "grads", name: ALL }))?.name).toBe(ALL);
});

it("puts what there is in place of what there is not", () => {
  expect(mapChoice(info, asked({ table: "drift", figure: "cos_to_init" }))).toMatchObject({
    table: "taps",
    figure: "std",
  });
  expect(mapChoice(info, asked({ figure: "l2", name: "attn_q" }))?.name).toBe("resid_post_block");
  expect(mapChoice(info, asked({ name: "attn_q", layer: 7 }))?.layer).toBeNull();
  expect(mapChoice(info, asked({ heads: true }))).toMatchObject({
    figure: "l2",
    name: "attn_q",
    layer: 0,
    heads: true,
  });
  expect(mapChoice({ ...info, tables: {} }, asked())).toBeNull();
});

it("keeps a row and a step in the address whatever is shown beside them", () => {
  const rows = [
    { name: "a", layer: null, head: null, label: "a" },
    { name: "b", layer: 0, head: 3, label: "b" },
    { name: "b", layer: 0, head: null, label: "b" },
  ];
  expect(rows.map((row) => rowAt(rows, rowKey(row)))).toEqual([0, 1, 2]);
  expect(rowAt(rows, "gone;4")).toBe(0);
  expect([columnAt([1, 10, 20], null), columnAt([1, 10, 20], 15), columnAt([1, 10, 20], 0)]).toEqual([2, 1, 0]);
});

it("lays histograms over each other on one axis", () => {
  const histograms = [
    { step: 1, low: -1, high: 1, counts: [1, 3] },
    { step: 9, low: -2, high: 4, counts: [5, 1] },
  ];
  expect(reach(histograms)).toEqual([-2, 4]);
  const ridges = ridgesOf(histograms, -2, 4, 600);
  expect(ridges.map(({ step }) => step)).toEqual([1, 9]);
  expect(ridges[0]?.path).toBe("M100.0 0L150.0 -16.7L250.0 -50.0L300.0 0Z");
  expect((ridges[1]?.base ?? 0) > (ridges[0]?.base ?? 0)).toBe(true);
  expect(reach([{ step: 1, low: "nan", high: "nan", counts: [0] }]).every(Number.isFinite)).toBe(true);
});

const region = (name: string, us: number, children: Region[] = [], path = name): Region => ({
  name,
  path,
  begin_us: 0,
  us,
  own_us: 0,
  children,
});
const step = region("step", 100, [
  region("forward", 40, [
    region("token_embd", 2),
    region("blocks.0", 30, [region("attn_qkv", 5, [], "forward/blocks.0/attn_qkv")], "forward/blocks.0"),
    region("loss", 6),
  ]),
  region("backward", 50, [region("blocks.0", 45, [], "backward/blocks.0")]),
  region("inspect", 1),
  region("inspect", 2),
]);

it("folds regions below the second, and tells parts of the same name apart", () => {
  const keys = (toggled: string[]) => regionRows(step, new Set(toggled)).map(({ key }) => key);
  const closed = keys([]);
  expect(closed).toContain("forward/blocks.0");
  expect(closed).not.toContain("forward/blocks.0/attn_qkv");
  expect(closed.slice(-2)).toEqual(["inspect", "inspect#1"]);
  expect(keys(["forward/blocks.0"])).toContain("forward/blocks.0/attn_qkv");
  expect(keys(["step"])).toEqual(["step"]);
});

const node = (name: string, op: string, inputs: string[]) => ({ name, op, inputs, role: "ephemeral", shape: "8" });
const flow = parseFlow({
  nodes: [
    { name: "ids", role: "input", shape: "8" },
    node("token_embd.embedding", "embedding", ["ids"]),
    node("blocks.0.attn_qkv.linear", "linear", ["token_embd.embedding"]),
    node("blocks.0.add", "add", ["blocks.0.attn_qkv.linear"]),
    node("blocks.1.attn_qkv.linear", "linear", ["blocks.0.add"]),
    node("blocks.1.add", "add", ["blocks.1.attn_qkv.linear"]),
    node("linear", "linear", ["blocks.1.add"]),
    node("cross_entropy", "cross_entropy", ["linear"]),
  ],
});
const map: InsideMap = {
  figure: "std",
  rows: [
    { name: "embd", layer: null, head: null, label: "" },
    { name: "attn_q", layer: 0, head: null, label: "" },
    { name: "attn_v", layer: 0, head: null, label: "" },
    { name: "resid_post_block", layer: 0, head: null, label: "" },
    { name: "resid_post_block", layer: 1, head: null, label: "" },
    { name: "logits", layer: null, head: null, label: "" },
  ],
  begins: [1, 10],
  ends: [1, 10],
  values: [
    [0, 1],
    [0, 2],
    [0, 3],
    [0, 4],
    [0, 5],
    [0, null],
  ],
  low: null,
  high: null,
  looks: 2,
  left_out: 0,
};

it("tells boxes of the graph what went through them, and how long they took", () => {
  if (!flow) throw new Error("no flow");
  const figures = figuresAt(map, 1);
  const times = timesByPart(step);
  const textOf = (folding: "layers" | "stacked" | "operations", id: string) => {
    const items = foldFlow(flow, folding).items.flatMap((item) => [item, ...(item.inside?.items ?? [])]);
    const item = items.find((one) => one.id === id);
    if (!item) throw new Error(`no box ${id} among ${items.map((one) => one.id)}`);
    return boxText(figuresOfBox(item, figures), timesOfBox(item, times), "std");
  };
  expect(textOf("layers", "blocks.0")).toBe("std 4 · 75 µs");
  expect(textOf("layers", "blocks.1")).toBe("std 5");
  expect(textOf("stacked", "blocks.0")).toBe("std 4…5 · 75 µs");
  expect(textOf("operations", "blocks.0.attn_qkv.linear")).toBe("std 2…3 · 5 µs");
  expect(textOf("operations", "blocks.0.add")).toBe("");
  expect(textOf("layers", "token_embd")).toBe("std 1 · 2 µs");
  expect(textOf("layers", "loss")).toBe("6 µs");
});

it("breaks a line where there is no number", () => {
  expect(
    linePath([
      [0, 1],
      [1, 2],
      [2, Number.NaN],
      [3, 4],
    ]),
  ).toBe("M0.0 1.0L1.0 2.0M3.0 4.0");
  expect(ticksOf({ low: 1e-5, high: 0.2, log: true })).toEqual([1e-5, 1e-4, 1e-3, 0.01, 0.1]);
  expect(ticksOf({ low: 3, high: 3, log: false })).toEqual([3]);
});

it("reads what commands printed, and nothing that is damaged", () => {
  const cka = { rows: ["embd", "0"], columns: ["0"], cka: [[0.5], [null]] };
  expect(tableOf(cka, "rows", "columns", "cka")).toEqual({
    rows: ["embd", "0"],
    columns: ["0"],
    values: [[0.5], [Number.NaN]],
  });
  expect(tableOf({ ...cka, cka: [[1]] }, "rows", "columns", "cka")).toBeNull();
  expect(tableOf({}, "rows", "columns", "cka")).toBeNull();
  expect(lineOf({ a: "x", alphas: [0, 1], losses: [2, 3], before: [1], barrier: 0.5, verdict: "barrier" })).toEqual({
    a: "x",
    b: "",
    alphas: [0, 1],
    losses: [2, 3],
    before: null,
    barrier: 0.5,
    verdict: "barrier",
  });
  expect(lineOf({ alphas: [0, 1], losses: [2] })).toBeNull();
  const words = { tokens: ["a"], layers: ["embd"], words_LTK: [[[{ text: " b", probability: 0.25 }]]] };
  expect(wordsOf(words)?.words).toEqual([[{ text: " b", probability: 0.25 }]]);
  expect(wordsOf({ ...words, words_LTK: [[]] })).toBeNull();
  expect(visible(" a\n")).toBe("·a⏎");
});

it("means attention over heads, and hides what a token cannot see", () => {
  const heads = [
    [
      [1, 0],
      [0.5, 0.5],
    ],
    [
      [1, 0],
      [0, 1],
    ],
  ];
  expect(meanOf(heads)).toEqual([
    [1, 0],
    [0.25, 0.75],
  ]);
  expect(masked(meanOf(heads))).toEqual([
    [1, Number.NaN],
    [0.25, 0.75],
  ]);
});
