import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it } from "vitest";
import { navigate } from "../../address";
import type { Source } from "../../data/source";
import { start } from "../../data/state";
import { FakePages, madeSeries } from "../fake-pages";
import { AttentionView } from "./attention";

/** Neither its maps come nor its checkpoints. */
class Thinking extends FakePages {
  override checkpoints = () => new Promise<never>(() => {});
  attention: Source["attention"] = (_id, _question, signal) =>
    new Promise((_, reject) => signal?.addEventListener("abort", () => reject(new Error("aborted"))));
}

it("who goes back from a text whose maps have not come can ask for those of another", async () => {
  const root = document.createElement("div");
  const button = () => root.querySelector("button");
  navigate("/run/a/inside");
  await act(async () => {
    start(new Thinking([{ id: "a", series: { loss: madeSeries([3]) } }]).source);
    render(<AttentionView id="a" />, root);
  });
  await act(() => {
    root.querySelector("form")?.dispatchEvent(new Event("submit", { cancelable: true }));
  });
  expect(root.textContent).toContain("computing");
  expect(button()?.disabled).toBe(true);
  await act(() => navigate("/run/a/inside"));
  expect(root.textContent).not.toContain("computing");
  expect(button()?.disabled).toBe(false);
});
