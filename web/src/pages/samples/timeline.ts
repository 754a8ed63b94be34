// Samples of runs by prompt and step.
import type { Sample } from "../../data/types";

/** Prompts in the order in which they were first used. */
export function promptsOf(samples: Iterable<readonly Sample[]>): string[] {
  const prompts = new Set<string>();
  for (const ofRun of samples) for (const sample of ofRun) prompts.add(sample.prompt);
  return [...prompts];
}

/** Steps at which any run wrote samples, in order; those without a step first. */
export function stepsOf(samples: Iterable<readonly Sample[]>): (number | null)[] {
  const steps = new Set<number | null>();
  for (const ofRun of samples) for (const sample of ofRun) steps.add(sample.step);
  return [...steps].sort(compareSteps);
}

export function compareSteps(a: number | null, b: number | null): number {
  return (a ?? -1) - (b ?? -1);
}

/** What a run wrote to a prompt last at or before a step, and what it wrote the time before that. */
export function sampleAt(
  samples: readonly Sample[],
  prompt: string,
  step: number | null,
): [Sample | null, Sample | null] {
  let latest: Sample | null = null;
  let before: Sample | null = null;
  for (const sample of samples) {
    if (sample.prompt !== prompt || compareSteps(sample.step, step) > 0) continue;
    if (latest === null || compareSteps(sample.step, latest.step) >= 0) {
      if (latest !== null && latest.step !== sample.step) before = latest;
      latest = sample;
    } else if (before === null || compareSteps(sample.step, before.step) >= 0) before = sample;
  }
  return [latest, before];
}

/** What the model wrote after the prompt; whole where the text does not begin with it. */
export function continuation(sample: Sample): { prompt: string; text: string } {
  const hasPrompt = sample.prompt !== "" && sample.text.startsWith(sample.prompt);
  return { prompt: sample.prompt, text: hasPrompt ? sample.text.slice(sample.prompt.length) : sample.text };
}
