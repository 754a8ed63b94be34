import { expect, it } from "vitest";
import { changedParts } from "./text-diff";

it("marks words that the other text does not have", () => {
  expect(changedParts("The whale was the sea", "The whale was the old sea")).toEqual([
    { text: "The whale was the ", changed: false },
    { text: "old", changed: true },
    { text: " sea", changed: false },
  ]);
});

it("keeps the text to the letter", () => {
  const text = "  a\n\nb  c\td ";
  const parts = changedParts("a b x d", text);
  expect(parts.map((part) => part.text).join("")).toBe(text);
});

it("marks nothing where nothing changed, and all where nothing is common", () => {
  expect(changedParts("same text", "same text")).toEqual([{ text: "same text", changed: false }]);
  expect(changedParts("", "all new")).toEqual([{ text: "all new", changed: true }]);
});

it("does not choke on long texts", () => {
  const long = Array.from({ length: 20_000 }, (_, index) => `word${index}`).join(" ");
  const parts = changedParts(long, `${long} end`);
  expect(parts.at(-1)).toEqual({ text: "end", changed: true });
});

it("marks the space between two marked words, but no indentation", () => {
  expect(changedParts("a z", "a b c\n  d z")).toEqual([
    { text: "a ", changed: false },
    { text: "b c", changed: true },
    { text: "\n  ", changed: false },
    { text: "d", changed: true },
    { text: " z", changed: false },
  ]);
});
