import { expect, it } from "vitest";
import { accuracyOf, classFigures, confusionOf } from "./confusion";

const cats = {
  labels: ["cat", "dog", "owl"],
  counts: [
    [8, 2, 0],
    [1, 9, 0],
    [0, 0, 0],
  ],
};

it("reads a square table whose columns are named as its rows", () => {
  expect(
    confusionOf(
      ["label", "cat", "dog"],
      [
        ["cat", 3, 1],
        ["dog", 0, 4],
      ],
    ),
  ).toEqual({
    labels: ["cat", "dog"],
    counts: [
      [3, 1],
      [0, 4],
    ],
  });
  expect(
    confusionOf(
      ["label", "cat", "dog"],
      [
        ["cat", 3, 1],
        ["cow", 0, 4],
      ],
    ),
  ).toBeNull();
  expect(
    confusionOf(
      ["step", "loss"],
      [
        [1, 2],
        [2, 3],
      ],
    ),
  ).toBeNull();
  expect(
    confusionOf(
      ["label", "cat", "dog"],
      [
        ["cat", 3, "many"],
        ["dog", 0, 4],
      ],
    ),
  ).toBeNull();
});

it("gives recall, precision and F1 of each class", () => {
  const [cat, dog, owl] = classFigures(cats);
  expect(cat).toMatchObject({ support: 10, recall: 0.8, precision: 8 / 9, confusedWith: "dog" });
  expect(dog).toMatchObject({ support: 10, recall: 0.9, precision: 9 / 11, confusedWith: "cat" });
  expect(owl).toMatchObject({ support: 0, recall: null, precision: null, f1: null, confusedWith: null });
  expect(accuracyOf(cats)).toEqual({ right: 17, total: 20 });
});
