import { describe, expect, type Mock, test, vi } from "vitest";
import { Changes } from "../data/changes";
import { FakeSource } from "./fake-source";
import { type Demand, type Follower, SeriesFeed, type TraceSet } from "./feed";

const steps = (amount: number) => Float64Array.from({ length: amount }, (_, at) => at);
const made = (amount = 1000) =>
  new FakeSource([
    { id: "a", series: { loss: { x: steps(amount), value: steps(amount).map((x) => 1 / (1 + x)), goal: "min" } } },
    {
      id: "b",
      series: {
        loss: { x: steps(amount), value: steps(amount), goal: "min" },
        lr: { x: steps(amount), value: steps(amount) },
      },
    },
  ]);
const demand = (changes: Partial<Demand> = {}): Demand => ({
  runs: ["a", "b"],
  keys: ["loss"],
  axis: "step",
  alpha: 0.5,
  superseded: false,
  points: 100,
  range: null,
  beside: [],
  ...changes,
});
const LOSS = { key: "loss", axis: "step" as const, again: false };
const never = new AbortController().signal;

function following(set: TraceSet): Follower & { grown: Mock<() => void>; stale: Mock<() => void> } {
  return {
    axis: set.demand.axis,
    traces: () => set.traces,
    keys: () => set.demand.keys,
    grown: vi.fn<() => void>(),
    stale: vi.fn<() => void>(),
  };
}

function feedOf(fake: FakeSource) {
  const changes = new Changes();
  changes.start(fake.source);
  return new SeriesFeed(
    () => fake.source,
    changes,
    () => true,
  );
}

describe("requests", () => {
  test("it has settled when all that was asked for is there, or failed, or was given up", async () => {
    const fake = made();
    const feed = feedOf(fake);
    const order: string[] = [];
    const fetched = feed.fetch(demand(), never).then(() => order.push("series"));
    const settled = feed.settled().then(() => order.push("settled"));
    expect(order).toEqual([]);
    await Promise.all([fetched, settled]);
    expect(order).toEqual(["series", "settled"]);
    const given = new AbortController();
    feed.fetch(demand({ points: 50 }), given.signal).catch(() => {});
    given.abort();
    await feed.settled();
    feed.fetch(demand({ runs: ["none"] }), never).catch(() => {});
    await feed.settled();
    await feed.settled();
  });

  test("charts that ask in one moment share a request", async () => {
    const fake = made();
    const feed = feedOf(fake);
    const [loss, rate] = await Promise.all([feed.fetch(demand(), never), feed.fetch(demand({ keys: ["lr"] }), never)]);
    expect(fake.asked).toHaveLength(1);
    expect(fake.asked[0]?.keys).toEqual(["loss", "lr"]);
    expect(loss.traces.map(({ run, key }) => `${run} ${key}`)).toEqual(["a loss", "b loss"]);
    expect(rate.traces.map(({ run, key }) => `${run} ${key}`)).toEqual(["b lr"]);
  });

  test("another stretch is another request", async () => {
    const fake = made();
    const feed = feedOf(fake);
    await Promise.all([feed.fetch(demand(), never), feed.fetch(demand({ range: { min: 10, max: 20 } }), never)]);
    expect(fake.asked.map(({ from, to }) => [from, to])).toEqual([
      [undefined, undefined],
      [10, 20],
    ]);
  });

  test("one that nobody waits for any more is not sent", async () => {
    const fake = made();
    const gone = new AbortController();
    void feedOf(fake).fetch(demand(), gone.signal);
    gone.abort();
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(fake.asked).toHaveLength(0);
  });
});

describe("live rows", () => {
  test("are added without a request, those that are known already left out", async () => {
    const fake = made(50);
    const feed = feedOf(fake);
    const set = await feed.fetch(demand(), never);
    vi.useFakeTimers();
    const follower = following(set);
    feed.follow(follower);
    vi.advanceTimersByTime(1000);
    expect(fake.followed?.()).toEqual({
      runs: ["a", "b"],
      keys: ["loss"],
      axes: ["step"],
      positions: [50, 50],
      watch: [],
    });
    fake.write("a", "loss", 50, 0.5);
    fake.listener?.series({ ...LOSS, run: "a", position: 52, x: [50, 51], value: [0.5, 0.25] });
    const [trace] = set.traces;
    expect(trace?.length).toBe(52);
    expect([...(trace?.mean.subarray(50, 52) ?? [])]).toEqual([0.5, 0.25]);
    expect(follower.grown).toHaveBeenCalledTimes(2);
    expect(follower.stale).not.toHaveBeenCalled();
    expect(fake.asked).toHaveLength(1);
    vi.useRealTimers();
  });

  test("after a gap, or a resume, the series is asked for anew", async () => {
    const fake = made(50);
    const feed = feedOf(fake);
    const follower = following(await feed.fetch(demand(), never));
    vi.useFakeTimers();
    feed.follow(follower);
    vi.advanceTimersByTime(1000);
    fake.listener?.series({ ...LOSS, run: "a", position: 60, x: [59], value: [1] });
    expect(follower.stale).toHaveBeenCalledTimes(1);
    fake.listener?.series({ ...LOSS, run: "b", position: 10, x: [], value: [], again: true });
    expect(follower.stale).toHaveBeenCalledTimes(2);
    vi.useRealTimers();
  });

  test("reach charts on another axis than the first, each on its own", async () => {
    const fake = made(50);
    const feed = feedOf(fake);
    const byStep = await feed.fetch(demand(), never);
    const byTime = await feed.fetch(demand({ axis: "relative time" }), never);
    vi.useFakeTimers();
    const followers = [following(byStep), following(byTime)];
    for (const follower of followers) feed.follow(follower);
    vi.advanceTimersByTime(1000);
    expect(fake.followed?.()).toMatchObject({ axes: ["step", "relative time"], positions: [50, 50] });
    fake.listener?.series({ ...LOSS, run: "a", position: 51, x: [50], value: [0.5] });
    fake.listener?.series({ ...LOSS, run: "a", axis: "relative time", position: 51, x: [812.5], value: [0.5] });
    expect([byStep, byTime].map(({ traces }) => traces[0]?.x[50])).toEqual([50, 812.5]);
    for (const follower of followers) expect(follower.grown).toHaveBeenCalledTimes(1);
    vi.useRealTimers();
  });
});
