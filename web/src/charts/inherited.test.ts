// @vitest-environment happy-dom
import { afterEach, beforeEach, expect, test } from "vitest";
import { start } from "../data/state";
import { csvOf } from "./csv";
import { FakeSource, type MadeSeries } from "./fake-source";
import { ChartModel } from "./model";
import { readingsAt } from "./readings";
import { namedLines } from "./styling";
import { headline } from "./summary";
import { ownView } from "./view";

const series = (first: number, rows: number, value: (x: number) => number): MadeSeries => {
  const x = Float64Array.from({ length: rows }, (_, at) => first + at);
  return { x, value: x.map(value), goal: "min" };
};
const fake = new FakeSource([
  { id: "base", series: { loss: series(1, 1000, (x) => 5 - x / 500) } },
  {
    id: "fork",
    row: { status: "live" },
    from: { run: "base", at: 600 },
    series: { loss: series(601, 300, (x) => 4 - x / 300) },
  },
]);
const family = new FakeSource([
  ...fake.made,
  { id: "again", from: { run: "fork", at: 800 }, series: { loss: series(801, 100, () => 1) } },
]);
const models: ChartModel[] = [];

function shown(points: number, ...runs: string[]): ChartModel {
  const model = new ChartModel(ownView(), { runs, keys: ["loss"], heldOut: new Set(), settings: new Map() });
  models.push(model);
  model.setPoints(points);
  model.setShown(true);
  return model;
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** Of each line its label, where it begins and ends, and how high its ends lie. */
function linesOf(model: ChartModel) {
  return model.styled.map(({ trace, label }) => {
    const last = trace.length - 1;
    return [label, trace.x[0], trace.x[last], trace.line[0], trace.line[last]];
  });
}

beforeEach(async () => {
  start(fake.source);
  await settled();
});
afterEach(() => {
  for (const model of models.splice(0)) model.dispose();
});

test("the chart of a fork begins with its parent's first step, and the lines join", async () => {
  const model = shown(4000, "fork");
  await settled();
  expect(linesOf(model)).toEqual([
    ["fork · from base", 1, 601, 5 - 1 / 500, 4 - 601 / 300],
    ["fork", 601, 900, 4 - 601 / 300, 4 - 900 / 300],
  ]);
  expect(model.content.value?.x).toEqual({ min: 0, max: 900 });
  expect(headline(model.styled, ["loss"], "step", true).text).toBe("best 1 at 900");
});

test("they join where columns stand for many steps, and where one looks closely", async () => {
  const model = shown(100, "fork");
  await settled();
  const [before, own] = model.styled;
  expect(before?.trace.exact).toBe(false);
  expect(before?.trace.x[before.trace.length - 1]).toBe(own?.trace.x[0]);
  expect(before?.trace.line[before.trace.length - 1]).toBe(own?.trace.line[0]);
  model.view.setRange({ min: 590, max: 610 });
  await settled();
  const close = model.styled.map(({ trace }) => [...trace.x.slice(0, trace.length)]);
  expect([close[0]?.at(-2), close[0]?.at(-1), close[1]?.[0]]).toEqual([600, 601, 601]);
});

test("with the parent shown too no line is drawn twice: only the way from its point at the fork is added", async () => {
  const model = shown(4000, "base", "fork");
  await settled();
  expect(linesOf(model)).toEqual([
    ["base", 1, 1000, 5 - 1 / 500, 3],
    ["fork · from base", 600, 601, 5 - 600 / 500, 4 - 601 / 300],
    ["fork", 601, 900, 4 - 601 / 300, 4 - 900 / 300],
  ]);
  expect(readingsAt(model.styled, 600, 0).map(({ styled }) => styled.label)).toEqual(["base"]);
  model.view.setRange({ min: 100, max: 200 });
  await settled();
  expect(model.styled.map(({ label }) => label)).toEqual(["base", "fork"]);
});

test.each([4000, 50])("of a fork of a fork each part joins the next; %i columns", async (points) => {
  start(family.source);
  await settled();
  const model = shown(points, "again");
  await settled();
  const traces = model.styled.map(({ trace }) => trace);
  expect(traces.map(({ inherited }) => inherited)).toEqual(["base", "fork", null]);
  for (const [before, after] of [traces.slice(0, 2), traces.slice(1)]) {
    expect(before?.x[before.length - 1]).toBe(after?.x[0]);
    expect(before?.line[before.length - 1]).toBe(after?.line[0]);
  }
});

test("with its family shown a fork of a fork is joined to its parent alone", async () => {
  start(family.source);
  await settled();
  const model = shown(4000, "base", "fork", "again");
  await settled();
  expect(linesOf(model).map(([label, first, last]) => [label, first, last])).toEqual([
    ["base", 1, 1000],
    ["fork · from base", 600, 601],
    ["fork", 601, 900],
    ["again · from fork", 800, 801],
    ["again", 801, 900],
  ]);
  model.setSubject({ ...model.subject, runs: ["fork", "again"] });
  await settled();
  expect(linesOf(model).map(([label, first, last]) => [label, first, last])).toEqual([
    ["fork · from base", 1, 601],
    ["fork", 601, 900],
    ["again · from fork", 800, 801],
    ["again", 801, 900],
  ]);
});

test("live rows go on with the fork's own line alone", async () => {
  const model = shown(4000, "fork");
  await settled();
  await new Promise((resolve) => setTimeout(resolve, 300)); // until the chart follows
  fake.write("fork", "loss", 901, 0.5);
  expect(model.styled.map(({ trace }) => [trace.length, trace.position])).toEqual([
    [601, 600],
    [301, 301],
  ]);
});

test("what is inherited is told at the cursor and in the table of rows, but is no line of the legend", async () => {
  const model = shown(4000, "fork");
  await settled();
  expect(readingsAt(model.styled, 300, 0).map(({ styled, value }) => [styled.label, value])).toEqual([
    ["fork · from base", 5 - 300 / 500],
  ]);
  expect(readingsAt(model.styled, 601, 0).map(({ styled }) => styled.label)).toEqual(["fork"]);
  expect(namedLines(model.styled).map(({ label }) => label)).toEqual(["fork"]);
  const rows = csvOf(model.styled, "step", { min: 600, max: 602 }).trim().split("\n");
  expect(rows.map((row) => row.split(",").slice(0, 3).join())).toEqual([
    "run,metric,step",
    "fork,loss,600",
    "fork,loss,601",
    "fork,loss,602",
  ]);
});

test("on an axis on which a fork does not count on nothing is inherited, nor by the mean of a group", async () => {
  const model = shown(4000, "fork");
  model.view.axis.value = "relative time";
  await settled();
  expect(fake.asked.at(-1)?.inherited).toBeUndefined();
  expect(model.styled.map(({ label }) => label)).toEqual(["fork"]);
  model.view.axis.value = "step";
  model.view.groupBy.value = "lr";
  model.setSubject({ ...model.subject, settings: new Map([["fork", { lr: 1 }]]) });
  await settled();
  expect(model.styled.map(({ trace }) => trace.x[0])).toEqual([601]);
});
