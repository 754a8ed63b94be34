import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it, vi } from "vitest";
import { later } from "./later";

it("fetches the code when it is first drawn, and once", async () => {
  const load = vi.fn(async () => ({ name }: { name: string }) => <b>{name}</b>);
  const Page = later(load);
  expect(load).not.toHaveBeenCalled();
  const root = document.createElement("div");
  await act(() => render(<Page name="a" />, root));
  await act(async () => {});
  expect(root.innerHTML).toBe("<b>a</b>");
  await act(() => render(null, root));
  await act(() => render(<Page name="b" />, root));
  expect(root.innerHTML).toBe("<b>b</b>");
  expect(load).toHaveBeenCalledTimes(1);
});
