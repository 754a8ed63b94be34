import { expect, test } from "vitest";
import type { RunRow } from "../data/types";
import { suggestions, wordBefore } from "./suggestions";

const row = (change: Partial<RunRow>) => ({ status: "completed", tags: [], recipe: null, ...change }) as RunRow;
const VOCABULARY = {
  settings: ["experiment", "config.lr", "config.optimizer", "model.d_model", "teacher.lr_end"],
  metrics: ["loss", "validation/loss"],
  rows: [row({ tags: ["wide", "keep"] }), row({ status: "live", tags: ["two words"], recipe: "warm-start" })],
};
const offered = (word: string) => suggestions(word, VOCABULARY).map(({ text }) => text);

test("the word before the caret is what is completed", () => {
  expect(wordBefore("loss<2 opt", 10)).toBe("opt");
  expect(wordBefore("not (rec", 8)).toBe("rec");
  expect(wordBefore("loss<2 ", 7)).toBe("");
});

test("names of metrics and settings, as short as they are clear", () => {
  expect(offered("los")).toEqual(["loss", "validation/loss"]);
  expect(offered("opt")).toEqual(["optimizer"]);
  expect(offered("lr")).toContain("lr_end");
  expect(offered("exp")).toEqual(["experiment:"]);
  expect(offered("loss<")).toEqual([]);
});

test("after a colon what runs are called", () => {
  expect(offered("tag:")).toEqual(["tag:keep", 'tag:"two words"', "tag:wide"]);
  expect(offered("status:li")).toEqual(["status:live"]);
  expect(offered("recipe:warm-start")).toEqual([]);
});
