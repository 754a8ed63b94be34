import { expect, it } from "vitest";
import { differingNames, settingRows, settingText, shortSetting } from "./settings";

it("lists what differs from the other run first", () => {
  const rows = settingRows(
    { "config.lr": 0.002, "model.d_model": 64, recipe: "from-scratch" },
    { "config.lr": 0.001, "model.d_model": 64, "config.beta": 1 },
  );
  expect(rows.map((row) => [row.name, row.differs])).toEqual([
    ["recipe", true],
    ["config.beta", true],
    ["config.lr", true],
    ["model.d_model", false],
  ]);
});

it("marks nothing where there is nothing to compare with", () => {
  expect(settingRows({ a: 1 }, null)).toEqual([{ name: "a", value: 1, other: undefined, differs: false }]);
});

it("names the settings in which runs differ", () => {
  expect(
    differingNames([
      { a: 1, b: [1, 2], c: "x" },
      { a: 1, b: [1, 2], c: "y", d: null },
    ]),
  ).toEqual(["c", "d"]);
  expect(differingNames([{ a: 1 }])).toEqual([]);
});

it("keeps every digit of a setting", () => {
  expect([0.0003, 1e-8, 4096, true, null, ["a"], "text"].map(settingText)).toEqual([
    "0.0003",
    "1e-8",
    "4,096",
    "yes",
    "–",
    '["a"]',
    "text",
  ]);
});

it("shortens a random number, and no other", () => {
  expect([0.003912048391427008, 0.0003, 123456, "text"].map(shortSetting)).toEqual([
    "0.003912",
    "0.0003",
    "123,456",
    "text",
  ]);
});
