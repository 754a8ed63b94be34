import { render } from "preact";
import { act } from "preact/test-utils";
import { beforeAll, beforeEach, expect, it } from "vitest";
import { address, navigate } from "../../address";
import { start } from "../../data/state";
import type { InsideInfo, InsideMap } from "../../data/types";
import { FakePages, madeSeries } from "../fake-pages";
import { InsideTab } from "./inside-tab";

const ATTACK = "<img src=x onerror=alert(1)>";
const inside: InsideInfo = {
  looks: { taps: { count: 2, first: 1, last: 10 } },
  tables: {
    taps: [{ name: "ffn_out", layers: [0, 1], figures: ["std"], head_figures: [], histogram: true }],
  },
  grams: [],
};
const insideMap: InsideMap = {
  figure: "std",
  rows: [0, 1].map((layer) => ({ name: "ffn_out", layer, head: null, label: String(layer) })),
  begins: [1, 10],
  ends: [5, 19],
  values: [
    [1, 2],
    [3, "nan"],
  ],
  low: [
    [1, 1.5],
    [3, null],
  ],
  high: [
    [1, 2],
    [3.5, null],
  ],
  looks: 4,
  left_out: 0,
};
const source = new FakePages(
  [
    { id: "seen", row: { name: "seen" }, series: { loss: madeSeries([3, 2], "min") } },
    { id: "plain", row: { name: "plain", recipe: "warm-start" }, series: { loss: madeSeries([3]) } },
  ],
  {
    seen: {
      inside,
      insideMap,
      log: [
        { t: 0, step: null, level: "info", text: "run started" },
        { t: 9, step: 30, level: "warning", text: `the loss has jumped ${ATTACK}` },
      ],
      insideResults: [
        {
          kind: "lmc",
          step: 10,
          text: ATTACK,
          picture: null,
          numbers: { a: "a", b: "b", alphas: [0, 0.5, 1], losses: [2, 3, 2.5], barrier: 0.75, verdict: "barrier" },
        },
        { kind: "drift", step: 10, text: "drift", picture: 77, numbers: null },
      ],
    },
  },
);
const root = document.createElement("div");
const text = () => root.textContent ?? "";
const key = (name: string) =>
  act(() => {
    root.querySelector("svg.choosable")?.dispatchEvent(new KeyboardEvent("keydown", { key: name, bubbles: true }));
  });

async function settled(): Promise<void> {
  for (let round = 0; round < 8; round++) await act(() => new Promise((resolve) => setTimeout(resolve, 5)));
}

async function open(id: string, query = ""): Promise<void> {
  navigate(`/run/${id}/inside${query}`);
  const detail = await source.run(id);
  await act(() => render(null, root));
  await act(() => render(<InsideTab detail={detail} />, root));
  await settled();
}

beforeAll(() => {
  document.body.append(root);
  start(source.source);
});
beforeEach(settled);

it("shows layers by steps, and of the latest step its curve and histogram", async () => {
  await open("seen");
  expect(text()).toContain("standard deviation");
  expect(text()).toContain("layer 0 · step 10–19: 2 (1.5 to 2)");
  expect(text()).toContain("ffn_out of layer 0 at step 10");
  expect(text()).toContain("4 looks at 2 rows; of several looks in a column");
});

it("moves through the map by the arrows, and the address keeps the place", async () => {
  await open("seen");
  await key("ArrowDown");
  expect(address.value.params.get("row")).toBe("ffn_out;1");
  expect(text()).toContain("layer 1 · step 10–19: not told, or no number");
  await key("ArrowLeft");
  expect(address.value.params.get("step")).toBe("1");
  expect(text()).toContain("layer 1 · step 1–5: 3 (3 to 3.5)");
});

it("says what went wrong, as text", async () => {
  await open("seen");
  expect(root.querySelector(".inside-warnings")?.textContent).toContain("step 30the loss has jumped <img");
  expect(root.querySelector("img")).toBeNull();
});

it("draws what analysis commands kept, or their picture", async () => {
  await open("seen", "?see=found");
  expect(text()).toContain("0.75 nats");
  expect(text()).toContain("barrier. The dashed line");
  expect(root.querySelector("img")?.getAttribute("src")).toBe("api/runs/seen/artifacts/77");
  expect(root.querySelectorAll("img")).toHaveLength(1);
});

it("says by which command a run is looked into, where it was not", async () => {
  await open("plain");
  expect(text()).toContain("This training was not looked into");
  expect(text()).toContain("linnet train warm-start … --inspect all");
});
