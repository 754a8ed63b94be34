import { expect, test } from "vitest";
import { matchScore } from "./fuzzy";

const ranked = (typed: string, texts: string[]) =>
  texts.filter((text) => matchScore(typed, text) > 0).sort((a, b) => matchScore(typed, b) - matchScore(typed, a));

test("the beginning of a word counts more than its middle, that more than letters left out", () => {
  expect(ranked("mu", ["plum", "mixed up", "muon-4e-3", "amuse"])).toEqual(["muon-4e-3", "amuse", "mixed up"]);
});

test("all words must fit, in any order", () => {
  expect(ranked("seed muon", ["muon seed 2", "muon", "seeds of muons"])).toEqual(["muon seed 2", "seeds of muons"]);
});

test("of equal fits the shorter text is the better", () => {
  expect(ranked("run", ["runs of all", "run"])).toEqual(["run", "runs of all"]);
});
