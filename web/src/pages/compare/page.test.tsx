import { render } from "preact";
import { act } from "preact/test-utils";
import { beforeAll, expect, it, vi } from "vitest";
import { address, navigate } from "../../address";
import { marked, start } from "../../data/state";
import { FakePages, madeSeries } from "../fake-pages";
import { ComparePage } from "./page";

vi.mock("../../charts", () => ({
  ChartCard: ({ keys }: { keys: string[] }) => <p class="fake-chart">{keys.join("+")}</p>,
}));

const runs = Array.from({ length: 6 }, (_, index) => ({
  id: `run-${index}`,
  settings: { "config.lr": 10 ** -(index + 1), "config.batch": 8, "config.optimizer": index % 2 ? "muon" : "adamw" },
  series: {
    loss: madeSeries([9, 6 - index], "min"),
    "validation/loss": madeSeries([8, 5.5 - index], "min"),
    lr: madeSeries([1, 2]),
  },
}));
const source = new FakePages(runs);
const root = document.createElement("div");
const text = () => root.textContent ?? "";
/** What was asked for has arrived and is drawn; an answer may lead to the next question. */
async function settled(): Promise<void> {
  for (let round = 0; round < 4; round++) await act(() => new Promise((resolve) => setTimeout(resolve, 5)));
}

async function compare(ids: string[], params: Record<string, string> = {}): Promise<void> {
  await act(() => render(null, root));
  navigate("/compare", { ...params });
  marked.value = ids;
  await act(() => render(<ComparePage />, root));
  await settled();
}

beforeAll(async () => {
  document.body.append(root);
  start(source.source);
  await settled();
});

it("shows only settings that differ, the equal ones on demand", async () => {
  await compare(["run-0", "run-1"]);
  const names = () =>
    [...root.querySelectorAll('[aria-label="Settings of each run"] tbody th')].map((cell) => cell.textContent);
  expect(names()).toEqual(["config.lr", "config.optimizer"]);
  const equal = [...root.querySelectorAll("button")].find((button) => button.textContent === "equal ones too");
  await act(() => equal?.click());
  expect(names()).toEqual(["config.lr", "config.optimizer", "config.batch"]);
  expect(address.value.params.get("equal")).toBe("1");
});

it("draws the held-out loss on the chart of the training loss", async () => {
  await compare(["run-0", "run-1"]);
  expect([...root.querySelectorAll(".fake-chart")].map((chart) => chart.textContent)).toContain("loss+validation/loss");
});

it("marks the best of each metric by its goal", async () => {
  await compare(["run-0", "run-3", "run-5"]);
  const best = [...root.querySelectorAll("td.best")].map((cell) => cell.textContent);
  expect(best).toEqual(["◆ best: 1", "◆ best: 0.5"]);
  expect(root.querySelectorAll("td.best")[0]?.closest("tr")?.textContent).toContain("run-5");
});

it("claims nothing from three runs", async () => {
  await compare(["run-0", "run-1", "run-2"]);
  const section = root.querySelector('[aria-label="Correlation of settings with a result"]');
  expect(section?.textContent).toContain("3 runs with this result tell nothing");
  expect(section?.querySelector("table")).toBeNull();
});

it("tells how settings go together with the result from six runs", async () => {
  await compare(runs.map(({ id }) => id));
  const row = [...root.querySelectorAll(".correlations tbody tr")].find((line) =>
    line.textContent?.startsWith("config.lr"),
  );
  expect(row?.textContent).toContain("+1.00");
  expect(row?.textContent).toContain("more of it: worse");
});

it("draws a point a run against a setting, on a log axis over decades", async () => {
  await compare(runs.map(({ id }) => id));
  expect(root.querySelectorAll(".scatter .point")).toHaveLength(6);
  expect(root.querySelector(".scatter .axis-name")?.textContent).toBe("config.lr, log");
});

it("filters by brushes of the address and can keep only what passes", async () => {
  await compare(
    runs.map(({ id }) => id),
    { brush: "config.lr:0-0.5" },
  );
  expect(text()).toContain("3 of 6 runs pass");
  expect(root.querySelectorAll(".parallel .run-line.out")).toHaveLength(3);
  const only = [...root.querySelectorAll("button")].find((button) => button.textContent === "only these 3");
  await act(() => only?.click());
  expect(marked.value).toEqual(["run-3", "run-4", "run-5"]);
});

it("moves an axis by the keyboard, in the address", async () => {
  await compare(runs.map(({ id }) => id));
  const handle = root.querySelector<SVGElement>(".axis-handle");
  const name = handle?.querySelector("title")?.textContent;
  await act(() => {
    handle?.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowRight", bubbles: true }));
  });
  expect(address.value.params.get("axes")?.split(",")[1]).toBe(name);
});
