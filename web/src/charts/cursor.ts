/** The one cursor that goes through all charts: where it stands on the x axis, and which run is looked at. */
import { signal } from "@preact/signals";

type Listener = () => void;

/** A place on the x axis of all charts that share it, told to each of them without a render. */
export class Cursor {
  #x: number | null = null;
  #axis = "";
  #origin: object | null = null;
  readonly #listeners = new Set<Listener>();

  get x(): number | null {
    return this.#x;
  }
  /** The chart under the pointer. */
  get origin(): object | null {
    return this.#origin;
  }
  get axis(): string {
    return this.#axis;
  }

  set(x: number, axis: string, origin: object): void {
    if (x === this.#x && origin === this.#origin && axis === this.#axis) return;
    this.#x = x;
    this.#axis = axis;
    this.#origin = origin;
    for (const listener of this.#listeners) listener();
  }

  /** `origin`: only if the cursor is that chart's. */
  clear(origin?: object): void {
    if (this.#x === null || (origin && origin !== this.#origin)) return;
    this.#x = null;
    this.#origin = null;
    for (const listener of this.#listeners) listener();
  }

  onMove(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  }
}

export const cursor = new Cursor();
/** The run above all others in every chart: the one under the pointer in a legend or a list. */
export const highlighted = signal<string | null>(null);
