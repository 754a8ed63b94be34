import { expect, test } from "vitest";
import { rowAt, rowOffsets, scrollToShow, visibleRows } from "./windowing";

const OFFSETS = rowOffsets([30, 34, 34, 30, 34], 5);

test("rows begin where those above them end", () => {
  expect([...OFFSETS]).toEqual([0, 30, 64, 98, 128, 162]);
});

test.each([
  [-5, 0],
  [0, 0],
  [29, 0],
  [30, 1],
  [97, 2],
  [1000, 4],
])("at %d px is row %d", (position, row) => {
  expect(rowAt(OFFSETS, position)).toBe(row);
});

test("only what is on the screen is drawn, of ten thousand rows too", () => {
  const offsets = rowOffsets(Array(10_000).fill(34), 10_000);
  expect(visibleRows(offsets, 170_000, 680, 4)).toEqual([4996, 5024]);
  expect(visibleRows(offsets, 0, 680, 4)).toEqual([0, 24]);
  expect(visibleRows(offsets, 340_000, 680, 4)).toEqual([9995, 10_000]);
});

test("an empty list shows nothing", () => {
  expect(visibleRows(rowOffsets([], 0), 0, 500, 4)).toEqual([0, 0]);
});

test("a row that is seen whole does not scroll; one above or below is brought to the edge", () => {
  expect(scrollToShow(OFFSETS, 2, 30, 100)).toBe(30);
  expect(scrollToShow(OFFSETS, 0, 30, 100)).toBe(0);
  expect(scrollToShow(OFFSETS, 4, 0, 100)).toBe(62);
});
