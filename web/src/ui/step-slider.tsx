import { useCommands } from "../keys";
import { count } from "../words";
import { Button } from "./button";
import "./slider.css";

interface StepSliderProps {
  /** Steps in order; null: logged without one. */
  steps: readonly (number | null)[];
  index: number;
  onChange(index: number): void;
  /** What is walked through: "samples". */
  label: string;
}

/** Walks through what was logged, step by step: a slider, two buttons, and the keys ← → Home End. */
export function StepSlider({ steps, index, onChange, label }: StepSliderProps) {
  const last = steps.length - 1;
  const go = (to: number) => onChange(Math.max(0, Math.min(last, to)));
  const several = () => last > 0;
  useCommands([
    {
      keys: ["ArrowLeft"],
      shown: "←",
      section: label,
      text: "the step before",
      run: () => go(index - 1),
      when: several,
    },
    {
      keys: ["ArrowRight"],
      shown: "→",
      section: label,
      text: "the next step",
      run: () => go(index + 1),
      when: several,
    },
    { keys: ["Home"], section: label, text: "the first step", run: () => go(0), when: several },
    { keys: ["End"], section: label, text: "the last step", run: () => go(last), when: several },
  ]);
  const text = stepText(steps[index] ?? null);
  if (last < 1) return <span class="step-slider dim">{text}</span>;
  return (
    <div class="step-slider">
      <Button label="the step before" disabled={index <= 0} onClick={() => go(index - 1)}>
        ‹
      </Button>
      <input
        type="range"
        min={0}
        max={last}
        value={index}
        aria-label={`${label} by step`}
        style={{ "--share": `${(index / last) * 100}%` }}
        aria-valuetext={`${text}, ${index + 1} of ${steps.length}`}
        onInput={(event) => go(Number(event.currentTarget.value))}
      />
      <Button label="the next step" disabled={index >= last} onClick={() => go(index + 1)}>
        ›
      </Button>
      <output>{text}</output>
      <span class="faint">
        {count(index + 1)} of {count(steps.length)}
      </span>
    </div>
  );
}

export function stepText(step: number | null): string {
  return step === null ? "no step" : `step ${count(step)}`;
}
