import { number, pageParam } from "../address";
import { StepSlider } from "../ui/step-slider";
import { compareSteps } from "./samples/timeline";

export const LATEST = -1;
export const stepParam = pageParam("step", number, LATEST);

/** Which of the steps the page shows: the latest at or before that of the address, which follows a live run if it says none. */
export function shownStep(steps: readonly (number | null)[]): number {
  const wanted = stepParam.value;
  const last = steps.length - 1;
  return Math.max(0, wanted === LATEST ? last : steps.findLastIndex((step) => compareSteps(step, wanted) <= 0));
}

/** Walks through steps, in the address. */
export function PageSteps({ label, steps }: { label: string; steps: readonly (number | null)[] }) {
  const show = (index: number) => stepParam.replace(index === steps.length - 1 ? LATEST : (steps[index] ?? LATEST));
  return <StepSlider label={label} steps={steps} index={shownStep(steps)} onChange={show} />;
}
