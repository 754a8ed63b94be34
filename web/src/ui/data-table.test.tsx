import { render } from "preact";
import { act } from "preact/test-utils";
import { expect, it } from "vitest";
import { address, navigate } from "../address";
import { DataTable, sortedOrder } from "./data-table";

const COLUMNS = [{ name: "run" }, { name: "loss", numeric: true }];
const cells = (root: Element) =>
  [...root.querySelectorAll("tbody tr:not(.space)")].map((row) => row.querySelector("td")?.textContent);

it("sorts numbers as numbers, and what is missing last either way", () => {
  const rows = [
    ["b", 10],
    ["a", 9],
    ["c", null],
    ["d", Number.NaN],
  ];
  expect(sortedOrder(rows, { column: 1, descending: false })).toEqual([1, 0, 2, 3]);
  expect(sortedOrder(rows, { column: 1, descending: true })).toEqual([0, 1, 2, 3]);
  expect(sortedOrder([["x10"], ["x9"]], { column: 0, descending: false })).toEqual([1, 0]);
});

it("draws only the rows on the screen of ten thousand", async () => {
  const root = document.createElement("div");
  const rows = Array.from({ length: 10_000 }, (_, index) => [`run-${index}`, index]);
  await act(() => render(<DataTable label="runs" columns={COLUMNS} rows={rows} height={10} />, root));
  expect(cells(root).length).toBeLessThan(40);
  expect(root.querySelector("table")?.getAttribute("aria-rowcount")).toBe("10001");
});

it("keeps how it is sorted in the address", async () => {
  navigate("/checkpoints", { order: "1" });
  const root = document.createElement("div");
  const rows = [
    ["a", 2],
    ["b", 1],
  ];
  await act(() => render(<DataTable label="runs" columns={COLUMNS} rows={rows} sortParam="order" />, root));
  expect(cells(root)).toEqual(["b", "a"]);
  await act(() => root.querySelectorAll<HTMLElement>("th button")[0]?.click());
  expect(address.value.params.get("order")).toBe("0");
  await act(() => root.querySelectorAll<HTMLElement>("th button")[0]?.click());
  expect(address.value.params.get("order")).toBe("-0");
  expect(cells(root)).toEqual(["b", "a"]);
});
