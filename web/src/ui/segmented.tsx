import "./control.css";

export interface SegmentedProps<T extends string> {
  label: string;
  options: readonly T[];
  value: T;
  /** What stands in place of an option's own word. */
  names?: Partial<Record<T, string>>;
  onChange(value: T): void;
}

/** One of a few words, all of them seen: a group of radio buttons. */
export function Segmented<T extends string>({ label, options, value, names, onChange }: SegmentedProps<T>) {
  function move(event: KeyboardEvent): void {
    const step = event.key === "ArrowRight" || event.key === "ArrowDown" ? 1 : event.key.startsWith("Arrow") ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const next = options[(options.indexOf(value) + step + options.length) % options.length];
    if (next === undefined) return;
    onChange(next);
    const group = event.currentTarget as HTMLElement;
    setTimeout(() => group.querySelector<HTMLElement>('[aria-checked="true"]')?.focus());
  }
  return (
    <div class="segmented" role="radiogroup" aria-label={label} onKeyDown={move}>
      {options.map((option) => (
        <button
          key={option}
          type="button"
          role="radio"
          aria-checked={option === value}
          tabIndex={option === value ? 0 : -1}
          onClick={() => onChange(option)}
        >
          {names?.[option] ?? option}
        </button>
      ))}
    </div>
  );
}

/** A word that is on or off. */
export function Toggle({ label, on, onChange }: { label: string; on: boolean; onChange(on: boolean): void }) {
  return (
    <div class="segmented">
      <button type="button" aria-pressed={on} onClick={() => onChange(!on)}>
        {label}
      </button>
    </div>
  );
}
