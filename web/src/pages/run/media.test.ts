import { expect, it } from "vitest";
import { commonGrid, numericColumns, readCsv, readHistogram, readTable, thinned } from "./media";

it("reads a table with numbers that JSON cannot spell", () => {
  const text = '{"columns":["a","b"],"rows":[[1,null],["x",{"k":1}]],"nonfinite":{"rows.0.1":"nan"}}';
  const table = readTable(text, "application/json");
  expect(table).toEqual({
    columns: ["a", "b"],
    rows: [
      [1, Number.NaN],
      ["x", '{"k":1}'],
    ],
    cut: false,
  });
  expect(() => readTable('{"columns":3}', "application/json")).toThrow("no table");
});

it("does not write outside the table, whatever nonfinite says", () => {
  const table = readTable(
    '{"columns":["a"],"rows":[[1]],"nonfinite":{"__proto__.polluted":"nan","rows.9.9":"nan"}}',
    "",
  );
  expect(table.rows).toEqual([[1]]);
  expect(({} as Record<string, unknown>).polluted).toBeUndefined();
});

it("reads CSV with quotes, commas and lines within cells", () => {
  const table = readCsv('name,"loss, held out"\n"a ""b""",1.5\r\n"two\nlines",\n');
  expect(table.columns).toEqual(["name", "loss, held out"]);
  expect(table.rows).toEqual([
    ['a "b"', 1.5],
    ["two\nlines", ""],
  ]);
  expect(numericColumns(readCsv("a,b\n1,x\n2,y"))).toEqual([true, false]);
});

it("reads a histogram, and says when it is none", () => {
  expect(readHistogram('{"counts":[1,2],"edges":[0,1,2]}').counts).toEqual([1, 2]);
  expect(() => readHistogram('{"counts":[1,2],"edges":[0,1]}')).toThrow("no histogram");
});

it("thins a long series, its last entry kept", () => {
  const numbers = Array.from({ length: 1000 }, (_, index) => index);
  expect(thinned(numbers, 10)).toHaveLength(10);
  expect(thinned(numbers, 10).at(-1)).toBe(999);
  expect(thinned([1, 2], 10)).toEqual([1, 2]);
});

it("brings histograms to one grid without losing counts", () => {
  const { low, high, shares } = commonGrid(
    [
      { counts: [1, 3], edges: [0, 1, 2] },
      { counts: [5], edges: [-2, 4] },
    ],
    6,
  );
  expect([low, high]).toEqual([-2, 4]);
  for (const grid of shares) expect(grid.reduce((sum, share) => sum + share, 0)).toBeCloseTo(1, 9);
  expect(shares[0]).toEqual([0, 0, 0.25, 0.75, 0, 0]);
});
