// @vitest-environment happy-dom
import { expect, test } from "vitest";
import type { ShownColumn } from "../../data/listing";
import { candidates, moved } from "./columns-dialog";
import { leastWidth, tableColumns } from "./columns-of-table";

const LR: ShownColumn = { term: "config.lr", label: "lr", kind: "setting", goal: null, numeric: true, index: 0 };

test("a phone has the name, the curve and the last value, and fits", () => {
  const columns = tableColumns(390, [LR], "loss");
  expect(columns.map((column) => column.id)).toEqual(["mark", "run", "curve", "last"]);
  expect(leastWidth(columns)).toBeLessThanOrEqual(390);
});

test("a desk has everything, what was chosen between the metric and the times", () => {
  const ids = tableColumns(1440, [LR], "loss").map((column) => column.id);
  expect(ids).toEqual(["mark", "run", "status", "step", "curve", "last", "best", "chosen", "time", "age"]);
});

test("columns are moved within their list", () => {
  expect(moved(["a", "b", "c"], 0, 2)).toEqual(["b", "c", "a"]);
  expect(moved(["a", "b", "c"], 2, 0)).toEqual(["c", "a", "b"]);
  expect(moved(["a"], 0, -1)).toEqual(["a"]);
});

test("what is offered fits what was typed, and a value at a step can be typed as it is", () => {
  expect(candidates("lr", ["config.lr", "seed"], ["loss"])).toEqual(["config.lr"]);
  expect(candidates("best loss", [], ["loss", "lr"])[0]).toBe("best(loss)");
  expect(candidates("loss@200", [], ["loss"])[0]).toBe("loss@200");
});
