/** The runs that are marked: in the address as long as it stays one that can be sent, beyond that on this page alone. */
import { effect, signal } from "@preact/signals";
import type { Param } from "../address";

const MOST_IN_ADDRESS = 200;

export class Marks {
  readonly #param: Param<readonly string[]>;
  /** More than an address should hold. */
  readonly #many = signal<readonly string[] | null>(null);

  constructor(param: Param<readonly string[]>) {
    this.#param = param;
    effect(() => {
      if (param.given) this.#many.value = null; // Back, or a link
    });
  }

  get value(): readonly string[] {
    return this.#many.value ?? this.#param.value;
  }
  set value(ids: readonly string[]) {
    this.#set(ids, false);
  }
  peek(): readonly string[] {
    return this.#many.peek() ?? this.#param.peek();
  }
  /** The same without an entry in the history. */
  replace(ids: readonly string[]): void {
    this.#set(ids, true);
  }

  #set(ids: readonly string[], replace: boolean): void {
    const kept = ids.length > MOST_IN_ADDRESS ? [] : ids;
    if (replace) this.#param.replace(kept);
    else this.#param.value = kept;
    this.#many.value = ids.length > MOST_IN_ADDRESS ? ids : null;
  }
}
