import { render } from "preact";
import { act } from "preact/test-utils";
import { assert, beforeAll, beforeEach, expect, it } from "vitest";
import { address, navigate } from "../../address";
import { start } from "../../data/state";
import { handleKey } from "../../keys";
import { FakePages, madeSeries } from "../fake-pages";
import { RunPage } from "./page";

const ATTACK = "<img src=x onerror=alert(1)>";
const sample = (step: number, text: string) => ({ step, t: step, prompt: "The whale", text });
const source = new FakePages(
  [
    {
      id: "wide",
      row: { name: ATTACK, status: "live", step: 40, total_steps: 100, tags: [ATTACK], metric: "loss" },
      settings: { "config.lr": 0.002, "config.dtype": "auto", "model.d_model": 64 },
      series: { loss: madeSeries([3, 2], "min") },
    },
    {
      id: "base",
      settings: { "config.lr": 0.001, "config.dtype": "auto", "model.d_model": 64 },
      series: { loss: madeSeries([3]) },
    },
  ],
  {
    wide: {
      detail: {
        remaining: 90,
        tokens_per_second: 6400,
        chosen: { dtype: "float32" },
        plan: { steps: 100, seconds: 200 },
        family: { ancestors: [{ id: "base", step: 20 }], children: [] },
        manifest: {
          provenance: {
            command: ["linnet", "train", "two words"],
            git: { sha: "0123456789abcdef", branch: "main", dirty: true },
          },
        },
      },
      samples: [sample(10, " was white"), sample(20, " was a white sea")],
      notes: [{ t: 1, step: null, at: "2026-01-01T00:00:00Z", text: ATTACK }],
      log: [
        { t: 0, step: null, level: "info", text: "run started" },
        { t: 9, step: 30, level: "warning", text: `spike ${ATTACK}` },
      ],
      artifacts: [
        {
          name: ATTACK,
          media: "text",
          items: [
            { number: 7, step: 1, t: 1, bytes: 9, mime: "text/plain", caption: ATTACK, inline: false, fields: {} },
          ],
        },
      ],
      contents: { 7: ATTACK },
      profile: [{ step: 16, t: 1, compute_us: 1000, buckets: { "aten::mm": 600, other: 300, "aten::add": 100 } }],
      flow: {
        nodes: [
          { name: "ids", role: "input" },
          { name: "a.linear", role: "output", op: "linear", inputs: ["ids"] },
        ],
      },
      checkpoints: [
        {
          step: 30,
          path: "weights/step_30.gguf",
          bytes: 1e6,
          train_loss: 3,
          validation_loss: 2.5,
          tokens: 100,
          best: true,
          latest: false,
          commands: ["linnet generate wide@30"],
        },
        {
          step: 40,
          path: "weights/step_40.gguf",
          bytes: 1e6,
          train_loss: 2,
          validation_loss: 2.9,
          tokens: 200,
          best: false,
          latest: true,
          commands: ["linnet generate wide@40"],
        },
      ],
      evaluations: [
        {
          step: 40,
          t: 1,
          name: "validation",
          samples: 4,
          figures: { accuracy: 0.75 },
          per_class: { cat: 1 },
          confusion: {
            labels: ["cat", "dog"],
            counts: [
              [2, 0],
              [1, 1],
            ],
          },
        },
      ],
    },
  },
);
const root = document.createElement("div");
const text = () => root.textContent ?? "";
/** What was asked for has arrived and is drawn; an answer may lead to the next question. */
async function settled(): Promise<void> {
  for (let round = 0; round < 4; round++) await act(() => new Promise((resolve) => setTimeout(resolve, 5)));
}

async function open(tab: string): Promise<void> {
  navigate(`/run/wide/${tab}`);
  await act(() => render(null, root));
  await act(() => render(<RunPage id="wide" tab={tab} />, root));
  await settled();
}

beforeAll(() => {
  document.body.append(root);
  start(source.source);
});
beforeEach(settled);

it("tells status, progress, remaining time, speed and family", async () => {
  await open("config");
  expect(text()).toContain("training");
  expect(text()).toContain("40 of 100");
  expect(text()).toContain("1 m 30 s");
  expect(text()).toContain("6,400 tokens/s");
  expect(text()).toContain("from base at step 20");
});

it("shows settings that differ from the parent first, and what auto became", async () => {
  await open("config");
  const rows = [...root.querySelectorAll(".settings tbody tr")].map((row) => row.textContent);
  expect(rows[0]).toBe("config.lr0.002instead of 0.001");
  expect(rows.some((row) => row?.includes("auto → float32"))).toBe(true);
  expect(text()).toContain("linnet train 'two words'");
  expect(text()).toContain("0123456789ab on main, with changes");
});

it.each(["config", "samples", "checkpoints", "artifacts", "classes", "profile", "flow", "notes", "log"])(
  "shows text from a run as text: %s",
  async (tab) => {
    await open(tab);
    expect(root.querySelector("img[onerror], script")).toBeNull();
    expect(root.querySelector("h1")?.textContent).toBe(ATTACK);
    expect(root.querySelector('.tabs [aria-current="page"]')).not.toBeNull();
  },
);

it("walks through samples by step and marks what is new", async () => {
  await open("samples");
  expect(root.querySelector("pre")?.textContent).toBe("The whale was a white sea");
  expect([...root.querySelectorAll("mark")].map((mark) => mark.textContent)).toEqual(["a", "sea"]);
  await act(() => handleKey(new KeyboardEvent("keydown", { key: "ArrowLeft" })));
  await settled();
  expect(root.querySelector("pre")?.textContent).toBe("The whale was white");
  expect(address.value.params.get("step")).toBe("10");
});

it("opens the best checkpoint, another by a click, and a tensor's histogram on demand", async () => {
  await open("checkpoints");
  expect(text()).toContain("linnet generate wide@30");
  expect(root.querySelector("svg.bars")).toBeNull();
  const tensor = [...root.querySelectorAll("tr")].find((row) => row.textContent?.includes("token_embd.weight"));
  await act(() => tensor?.click());
  await settled();
  expect(root.querySelectorAll("svg.bars rect")).toHaveLength(3);
  const later = [...root.querySelectorAll("tr")].find((row) => row.textContent?.includes("latest"));
  await act(() => later?.click());
  await settled();
  expect(text()).toContain("linnet generate wide@40");
  expect(address.value.params.get("open")).toBe("wide@40");
});

it("draws the confusion matrix and figures of each class, the worst first", async () => {
  await open("classes");
  expect(root.querySelectorAll(".confusion rect")).toHaveLength(4);
  expect(text()).toContain("75.0 % of 4 right");
  const rows = [...root.querySelectorAll(".data-table tbody tr")].map((row) => row.textContent);
  expect(rows[0]).toMatch(/^dog50\.0 %/);
});

it("lists operations by time, the rest last", async () => {
  await open("profile");
  const names = [...root.querySelectorAll(".profile-table tbody td:first-child")].map((cell) => cell.textContent);
  expect(names).toEqual(["aten::mm", "aten::add", "other"]);
});

it("draws the model", async () => {
  await open("flow");
  expect(root.querySelectorAll(".flow .box")).toHaveLength(2);
  expect(root.querySelectorAll(".flow .wire")).toHaveLength(1);
});

it("writes a note", async () => {
  await open("notes");
  const field = root.querySelector("textarea");
  assert(field);
  await act(() => {
    field.value = "looks good";
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  await act(() => {
    root.querySelector("form")?.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
  });
  await settled();
  expect(source.written).toEqual(["looks good"]);
});

it("filters the log by level", async () => {
  await open("log");
  expect(root.querySelectorAll(".log li")).toHaveLength(2);
  const warnings = [...root.querySelectorAll("button")].find((button) => button.textContent === "warnings");
  await act(() => warnings?.click());
  expect(root.querySelectorAll(".log li")).toHaveLength(1);
  expect(address.value.params.get("level")).toBe("warnings");
});

it("goes to a tab by the terminal board's key", async () => {
  await open("log");
  await act(() => handleKey(new KeyboardEvent("keydown", { key: "c" })));
  expect(address.value.path).toEqual(["run", "wide", "config"]);
});

it("says that a run is not there", async () => {
  await act(() => render(<RunPage id="nobody" tab="" key="nobody" />, root));
  await settled();
  expect(text()).toContain("there is no run nobody");
});
