// @vitest-environment happy-dom
import { signal } from "@preact/signals";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import { known, start } from "../data/state";
import { FakeSource, type MadeSeries } from "./fake-source";
import { ChartModel } from "./model";
import type { ChartSubject } from "./styling";
import { headline } from "./summary";
import { ownView } from "./view";

const series = (rows: number, value: (x: number) => number): MadeSeries => {
  const x = Float64Array.from({ length: rows }, (_, at) => at + 1);
  return { x, value: x.map(value), goal: "min" };
};
const fake = new FakeSource([
  {
    id: "short",
    row: { status: "live" },
    settings: { lr: 1, seed: 1 },
    series: { loss: series(1000, (x) => 5 - x / 500) },
  },
  { id: "again", settings: { lr: 1, seed: 2 }, series: { loss: series(1000, (x) => 6 - x / 500) } },
  { id: "long", settings: { lr: 2, seed: 1 }, series: { loss: series(50_000, (x) => 1 / x) } },
]);
const subject = (...runs: string[]): ChartSubject => ({
  runs,
  keys: ["loss"],
  heldOut: new Set(),
  settings: new Map(fake.made.map(({ id, settings = {} }) => [id, settings])),
});
const models: ChartModel[] = [];

function shown(view = ownView(), ...runs: string[]): ChartModel {
  const model = new ChartModel(view, subject(...runs));
  models.push(model);
  model.setPoints(400);
  model.setShown(true);
  return model;
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
}

beforeAll(async () => {
  start(fake.source);
  await settled();
  expect(known.value.size).toBe(3);
});
afterEach(() => {
  for (const model of models.splice(0)) model.dispose();
  fake.asked.length = 0;
});

test("the line of a baseline is faint, lies below, and stretches no axis", async () => {
  const view = ownView();
  const model = new ChartModel(view, { ...subject("short"), baselines: ["long"] });
  models.push(model);
  model.setPoints(400);
  model.setShown(true);
  await settled();
  const [below, own] = model.styled;
  expect([below?.trace.run, own?.trace.run]).toEqual(["long", "short"]);
  expect(below?.label).toBe("long · baseline");
  expect([below?.isBaseline, own?.isBaseline]).toEqual([true, false]);
  expect(view.extents.value?.max).toBeLessThan(1010);
  expect(fake.asked).toMatchObject([{ runs: ["short"], beside: ["long"] }]);
  expect(headline(model.styled, ["loss"], "step", true).text).toBe("best 3 at 1,000");
});

describe("what is fetched", () => {
  test("as many columns as the chart is wide, and nothing while it is not in sight", async () => {
    const model = new ChartModel(ownView(), subject("short"));
    models.push(model);
    model.setPoints(400);
    await settled();
    expect(fake.asked).toHaveLength(0);
    model.setShown(true);
    await settled();
    expect(fake.asked).toMatchObject([{ runs: ["short"], keys: ["loss"], points: 400 }]);
    expect(model.status.value).toBe("ready");
    expect(model.content.value?.x).toEqual({ min: 0, max: 1001 });
  });

  test("a zoom fetches finer series; the whole stays for what lies beside it", async () => {
    const view = ownView();
    const model = shown(view, "long");
    await settled();
    view.setRange({ min: 1000, max: 1100 });
    await settled();
    expect(fake.asked.at(-1)).toMatchObject({ from: 1000, to: 1100 });
    expect(model.content.value?.parts.map(({ from, to }) => [from, to])).toEqual([
      [null, null],
      [1000, 1100],
    ]);
    expect(model.styled[0]?.trace.exact).toBe(true);
    view.setRange(null);
    await settled();
    expect(model.content.value?.parts).toHaveLength(1);
  });

  test("a zoom is drawn when its finer series are there; where they are late, what is there is stretched", async () => {
    const view = ownView();
    const model = shown(view, "long");
    await settled();
    const stretches: (readonly [number, boolean])[] = [];
    const end = model.content.subscribe((content) => content && stretches.push([content.x.max, content.awaiting]));
    view.setRange({ min: 100, max: 2000 });
    await new Promise((resolve) => queueMicrotask(() => resolve(null)));
    expect(stretches).toEqual([[50_001, false]]);
    await settled();
    expect(stretches.at(-1)).toEqual([2000, false]);
    expect(stretches.some(([, awaiting]) => awaiting)).toBe(false);
    const answer = fake.series;
    let answerLate = (): void => {};
    const late = new Promise<void>((resolve) => {
      answerLate = resolve;
    });
    fake.series = async (query) => {
      await late;
      return answer.call(fake, query);
    };
    view.setRange({ min: 100, max: 1000 });
    await new Promise((resolve) => setTimeout(resolve, 120));
    expect(stretches.at(-1)).toEqual([1000, true]);
    fake.series = answer;
    answerLate();
    await settled();
    expect(stretches.at(-1)).toEqual([1000, false]);
    end();
  });

  test("on a log axis its beginning is fetched finer", async () => {
    const view = ownView({ logX: signal(true) });
    const model = shown(view, "long");
    await settled();
    await settled();
    expect(model.content.value?.parts.length).toBeGreaterThan(2);
    expect(model.content.value?.x.min).toBeGreaterThan(0);
  });

  test("the very rows beside a place, where a column stands for many", async () => {
    const model = shown(ownView(), "long");
    await settled();
    const exact = await model.exactAt(1234, new AbortController().signal);
    const trace = exact?.[0]?.trace;
    const row = trace?.nearest(1234) ?? -1;
    expect([trace?.x[row], trace?.mean[row]]).toEqual([1234, 1 / 1234]);
  });
});

describe("charts that share a view", () => {
  test("show the x axis of all of them", async () => {
    const view = ownView();
    const model = shown(view, "short");
    const other = shown(view, "long");
    await settled();
    expect(model.content.value?.x.max).toBeGreaterThan(49_000);
    other.setShown(false);
    other.setSubject(subject("again")); // not in sight: its old runs must not stretch the axis
    await settled();
    expect(model.content.value?.x.max).toBeLessThan(1100);
  });

  test("drop what is on another axis at once", async () => {
    const view = ownView();
    const model = shown(view, "short");
    await settled();
    view.axis.value = "tokens";
    expect(model.content.value).toBeNull();
    expect(model.status.value).toBe("loading");
    await settled();
    expect(fake.asked.at(-1)).toMatchObject({ axis: "tokens" });
    expect(model.status.value).toBe("ready");
  });
});

test("runs of a group are one line", async () => {
  const view = ownView();
  const model = shown(view, "short", "again", "long");
  await settled();
  view.groupBy.value = "lr";
  expect(model.styled.map(({ label, spread }) => [label, spread])).toEqual([
    ["lr 1 (2)", true],
    ["lr 2", false],
  ]);
  const [both] = model.styled;
  expect(both?.trace.mean[0]).toBeGreaterThan(5);
  expect((both?.trace.high[0] ?? 0) - (both?.trace.low[0] ?? 0)).toBeCloseTo(Math.SQRT2, 3); // ± std of two, 1 apart
  expect(model.content.value?.rings).toEqual([]);
});

test("the best point has a ring", async () => {
  const model = shown(ownView(), "short", "again");
  await settled();
  expect(model.content.value?.rings).toMatchObject([{ x: 1000, y: 3 }]);
});
