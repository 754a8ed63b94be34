// @vitest-environment happy-dom
import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it, vi } from "vitest";
import { start } from "../../data/state";
import type { RunMetrics } from "../../data/types";
import { FakePages } from "../fake-pages";
import { useMetrics } from "./metrics";

/** A run that logs its first row after it was asked for its metrics, and before the stream tells of it. */
class Beginning extends FakePages {
  questions = 0;

  override async metrics(runs: readonly string[]): Promise<RunMetrics[]> {
    this.questions++;
    const answer = await super.metrics(runs);
    return this.questions > 1 ? answer : answer.map((run) => ({ ...run, metrics: [] }));
  }
}

function Names() {
  const metrics = useMetrics(["a"]);
  if (metrics === null || typeof metrics === "string") return <p>…</p>;
  return <p>{metrics.flatMap((run) => run.metrics.map(({ key }) => key)).join()}</p>;
}

it("asks again for the metrics of a run from the moment that the stream tells of it", async () => {
  const fake = new Beginning([{ id: "a", series: { loss: { x: new Float64Array(1), value: new Float64Array(1) } } }]);
  const root = document.createElement("div");
  await act(async () => {
    start(fake.source);
    render(<Names />, root);
  });
  await vi.waitFor(() => expect(root.textContent).toBe("loss"), 3000);
  expect(fake.questions).toBe(2);
  expect(fake.followed?.().watch).toEqual(["a"]);
});
