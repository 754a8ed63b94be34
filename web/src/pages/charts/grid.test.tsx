import { type ComponentChildren, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { navigate } from "../../address";
import { start } from "../../data/state";
import type { RunMetrics } from "../../data/types";
import { Header } from "../../header";
import { FakePages, madeSeries } from "../fake-pages";
import { ChartsTab } from "../run/charts";
import { ChartsPage } from "./page";

// There is no canvas here.
vi.mock("./section", () => ({ Section: ({ columns }: { columns: number }) => <b>{columns} columns</b> }));
vi.mock("./full", () => ({ FullChart: () => <b>a chart</b> }));

const WIDE = 1300;
const observers = new Set<{ measure(): void }>();

class Observer {
  readonly #tell: () => void;

  constructor(tell: () => void) {
    this.#tell = tell;
  }
  observe(): void {
    observers.add(this);
  }
  disconnect(): void {
    observers.delete(this);
  }
  measure(): void {
    this.#tell();
  }
}

class ByStep extends FakePages {
  override async metrics(runs: readonly string[]): Promise<RunMetrics[]> {
    return (await super.metrics(runs)).map((run) => ({ ...run, axes: ["step"] }));
  }
}

const source = new ByStep([{ id: "a", series: { loss: madeSeries([3, 2], "min") } }]);
const root = document.createElement("div");

async function settled(): Promise<void> {
  for (let round = 0; round < 8; round++) await act(() => new Promise((resolve) => setTimeout(resolve, 5)));
  await act(() => {
    for (const observer of observers) observer.measure();
  });
}

beforeEach(async () => {
  vi.stubGlobal("ResizeObserver", Observer);
  vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockImplementation(function (this: HTMLElement) {
    return this.isConnected ? WIDE : 0;
  });
  document.body.append(root);
  navigate("/charts", { runs: "a", smooth: "" });
  await act(() => start(source.source));
});

afterEach(async () => {
  await act(() => render(null, root));
  root.remove();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

it("the charts have as many columns as fit, also after one filled the page", async () => {
  await act(() => render(<ChartsPage />, root));
  await settled();
  expect(root.textContent).toContain("4 columns");
  navigate("/charts", { chart: "loss" });
  await settled();
  expect(root.textContent).toContain("a chart");
  navigate("/charts");
  await settled();
  expect(root.textContent).toContain("4 columns");
});

it("the header keeps the controls of the page that follows, and none of one that is gone", async () => {
  const controls = () => root.querySelector(".controls")?.textContent;
  const detail = await source.run("a");
  const frame = (page: ComponentChildren) => (
    <>
      <Header hasSide={false} />
      {page}
    </>
  );
  await act(() => render(frame(<ChartsTab detail={detail} />), root));
  await settled();
  expect(controls()).not.toBe("");
  render(frame(<ChartsPage />), root); // its metrics come before the next frame
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(controls()).not.toBe("");
  await act(() => render(frame(null), root));
  expect(controls()).toBe("");
});

it("where no line has enough rows to be smoothed that much, the page says so", async () => {
  await act(() => render(<ChartsPage />, root));
  await settled();
  expect(root.textContent).not.toContain("smoothed by");
  await act(() => navigate("/charts", { smooth: "0.99" }));
  await settled();
  expect(root.textContent).toContain("smoothed by 0.99 from 995 rows on");
});
