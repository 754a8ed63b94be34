import { expect, it } from "vitest";
import { continuation, promptsOf, sampleAt, stepsOf } from "./timeline";

const sample = (step: number | null, prompt: string, text: string) => ({ step, t: step ?? 0, prompt, text });
const run = [sample(100, "The", "a"), sample(100, "Once", "b"), sample(200, "The", "c"), sample(300, "The", "d")];

it("knows prompts and steps of several runs", () => {
  expect(promptsOf([run, [sample(1, "New", "")]])).toEqual(["The", "Once", "New"]);
  expect(stepsOf([run, [sample(250, "The", ""), sample(null, "The", "")]])).toEqual([null, 100, 200, 250, 300]);
});

it("finds what was written last at or before a step, and the time before", () => {
  expect(sampleAt(run, "The", 250).map((sample) => sample?.text)).toEqual(["c", "a"]);
  expect(sampleAt(run, "The", 100).map((sample) => sample?.text ?? null)).toEqual(["a", null]);
  expect(sampleAt(run, "The", 50)).toEqual([null, null]);
  expect(sampleAt(run, "Once", 300).map((sample) => sample?.text ?? null)).toEqual(["b", null]);
});

it("takes the prompt off a text that begins with it", () => {
  expect(continuation(sample(1, "The whale", "The whale was"))).toEqual({ prompt: "The whale", text: " was" });
  expect(continuation(sample(1, "The whale", " was"))).toEqual({ prompt: "The whale", text: " was" });
});
