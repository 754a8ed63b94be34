import { pageParam, text } from "../../address";
import { type ComparedMetric, mainMetric } from "./comparison";

const resultParam = pageParam("result", text, "");

/** The result that scatter, parallel coordinates and correlations are about. */
export function chosenResult(metrics: readonly ComparedMetric[]): ComparedMetric | undefined {
  return metrics.find((metric) => metric.key === resultParam.value) ?? mainMetric(metrics);
}

/** Chooses that result. */
export function ResultSelect({ metrics }: { metrics: readonly ComparedMetric[] }) {
  return (
    <Choice
      label="result"
      options={metrics.map(({ key }) => key)}
      value={chosenResult(metrics)?.key ?? ""}
      onChange={(key) => {
        resultParam.value = key;
      }}
    />
  );
}

interface ChoiceProps {
  label: string;
  options: readonly string[];
  value: string;
  onChange(value: string): void;
}

/** One of many names. */
export function Choice({ label, options, value, onChange }: ChoiceProps) {
  return (
    <label class="choice">
      <span class="faint">{label}</span>
      <select class="select" value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option} value={option}>
            {option}
          </option>
        ))}
      </select>
    </label>
  );
}
