import type { ComponentChildren } from "preact";

interface LabelledSelectProps {
  label: string;
  value: string | number;
  /** What is chosen from, and how each is called. */
  options: readonly (readonly [value: string | number, name: ComponentChildren])[];
  onChange(value: string): void;
}

/** One of many words, with its label before it. */
export function LabelledSelect({ label, value, options, onChange }: LabelledSelectProps) {
  return (
    <span class="labelled">
      <span aria-hidden="true">{label}</span>
      <select class="select" aria-label={label} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([option, name]) => (
          <option key={option} value={option}>
            {name}
          </option>
        ))}
      </select>
    </span>
  );
}
