import "./slider.css";

export interface SliderProps {
  label: string;
  min: number;
  max: number;
  step: number;
  value: number;
  /** As it is shown and read out. */
  shown?: string;
  onInput(value: number): void;
}

/** A number within bounds. */
export function Slider({ label, min, max, step, value, shown = String(value), onInput }: SliderProps) {
  const share = max > min ? ((value - min) / (max - min)) * 100 : 0;
  return (
    <label class="slider">
      <span>{label}</span>
      <input
        type="range"
        min={min}
        max={max}
        step={step}
        value={value}
        aria-valuetext={shown}
        style={{ "--share": `${share}%` }}
        onInput={(event) => onInput(event.currentTarget.valueAsNumber)}
      />
      <output>{shown}</output>
    </label>
  );
}
