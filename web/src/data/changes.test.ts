import { expect, it, vi } from "vitest";
import { Changes } from "./changes";
import type { ChangesListener, ChangesQuery, Source } from "./source";

class OpenedStreams {
  readonly live = true;
  readonly queries: ChangesQuery[] = [];
  listener: ChangesListener | null = null;

  changes(query: () => ChangesQuery, listener: ChangesListener): () => void {
    this.queries.push(query());
    this.listener = listener;
    return () => {};
  }
}

function started(): [Changes, OpenedStreams] {
  const [changes, streams] = [new Changes(), new OpenedStreams()];
  changes.start(streams as unknown as Source);
  return [changes, streams];
}

it("asks for the runs that somebody watches, and no longer when nobody does", () => {
  vi.useFakeTimers();
  const [changes, streams] = started();
  const ends = [changes.watch(["a", "b"]), changes.watch(["b"])];
  vi.runAllTimers();
  expect(streams.queries.at(-1)?.watch).toEqual(["a", "b"]);
  ends[0]?.();
  vi.runAllTimers();
  expect(streams.queries.at(-1)?.watch).toEqual(["b"]);
  const opened = streams.queries.length;
  changes.watch(["b"])();
  vi.runAllTimers();
  expect(streams.queries).toHaveLength(opened);
  vi.useRealTimers();
});

it("asks for runs beside those of followed series, of which each has a position for each key", () => {
  vi.useFakeTimers();
  const [changes, streams] = started();
  const series = { runs: ["a"], keys: ["loss"], axes: ["step" as const], positions: [7] };
  changes.watch(["other", "a"]);
  changes.follow(() => series);
  vi.runAllTimers();
  expect(streams.queries.at(-1)).toEqual({ ...series, watch: ["other"] });
  vi.useRealTimers();
});

it("says of which runs the stream tells from now on, once it is open", () => {
  vi.useFakeTimers();
  const [changes, streams] = started();
  const said: string[][] = [];
  changes.onWatched((runs) => said.push([...runs]));
  changes.watch(["a"]);
  vi.runAllTimers();
  expect(said).toEqual([]);
  streams.listener?.connected(true);
  changes.watch(["b"]);
  vi.runAllTimers();
  streams.listener?.connected(true);
  expect(said).toEqual([["a"], ["b"]]);
  vi.useRealTimers();
});

it("tells each listener until it ends", () => {
  const [changes, streams] = started();
  const said: string[] = [];
  const end = changes.onRun(({ id }) => said.push(id));
  streams.listener?.run({ id: "a", parts: ["notes"] });
  end();
  streams.listener?.run({ id: "b", parts: ["notes"] });
  expect(said).toEqual(["a"]);
});
