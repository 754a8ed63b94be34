import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it } from "vitest";
import { FakePages, madeSeries } from "../pages/fake-pages";
import { useLoaded } from "./loaded";
import { start } from "./state";

it("an answer that a later question overtook is dropped", async () => {
  const fake = new FakePages([{ id: "a", series: { loss: madeSeries([3]) } }]);
  const answers: ((text: string) => void)[] = [];
  const load = () => new Promise<string>((resolve) => answers.push(resolve));
  function Notes() {
    return <p>{useLoaded("a", "notes", load, ["notes"]).value}</p>;
  }
  const root = document.createElement("div");
  await act(async () => {
    start(fake.source);
    render(<Notes />, root);
  });
  await act(() => new Promise((resolve) => setTimeout(resolve, 100))); // the stream is open
  fake.listener?.connected(false);
  fake.listener?.connected(true); // everything is asked anew
  expect(answers.length).toBeGreaterThan(1);
  const [first, ...later] = answers;
  await act(async () => {
    for (const answer of later) answer("new");
  });
  await act(async () => first?.("old"));
  expect(root.textContent).toBe("new");
});
