import { signal } from "@preact/signals";
import "./toast.css";

export interface Toast {
  id: number;
  text: string;
  kind: "note" | "problem";
  action?: { text: string; run(): void };
}

const LASTS = 6000; // milliseconds; twice as long with something to do about it
const toasts = signal<readonly Toast[]>([]);
let next = 0;

/** Says something at the foot of the page, for a while; `action`: what can be done about it, "Undo". */
export function toast(text: string, { kind = "note", action }: Partial<Omit<Toast, "id" | "text">> = {}): void {
  const entry: Toast = { id: next++, text, kind, ...(action ? { action } : {}) };
  toasts.value = [...toasts.peek().slice(-3), entry];
  setTimeout(() => dismiss(entry.id), action || kind === "problem" ? 2 * LASTS : LASTS);
}

export function problem(error: unknown): void {
  toast(error instanceof Error ? error.message : String(error), { kind: "problem" });
}

function dismiss(id: number): void {
  toasts.value = toasts.peek().filter((entry) => entry.id !== id);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((entry) => (
        <div key={entry.id} class={`toast ${entry.kind}`}>
          <span>{entry.text}</span>
          {entry.action && (
            <button
              type="button"
              class="toast-action"
              onClick={() => {
                dismiss(entry.id);
                entry.action?.run();
              }}
            >
              {entry.action.text}
            </button>
          )}
          <button type="button" class="toast-close" aria-label="Dismiss" onClick={() => dismiss(entry.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
