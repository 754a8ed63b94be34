/**
 * The address of the page, as signals: a hash route with parameters, `#/charts?runs=a,b&smooth=0.3`.
 *
 * Whatever makes a view is a parameter, so that a view can be bookmarked, sent and gone back to. A parameter at its
 * default is left out.
 */
import { computed, type ReadonlySignal, signal } from "@preact/signals";

export interface Address {
  readonly path: readonly string[];
  readonly params: ReadonlyMap<string, string>;
}

/** How a parameter is written in the address. `parse` gives undefined for what cannot be read: then the default holds. */
export interface Codec<T> {
  parse(text: string): T | undefined;
  format(value: T): string;
}

export function parseAddress(hash: string): Address {
  const text = hash.replace(/^#?\/?/, "");
  const cut = text.indexOf("?");
  const path = (cut < 0 ? text : text.slice(0, cut)).split("/").filter(Boolean).map(decode);
  const params = new Map<string, string>();
  for (const pair of cut < 0 ? [] : text.slice(cut + 1).split("&")) {
    const equals = pair.indexOf("=");
    const name = decode(equals < 0 ? pair : pair.slice(0, equals));
    if (name) params.set(name, equals < 0 ? "" : decode(pair.slice(equals + 1)));
  }
  return { path, params };
}

export function formatAddress(path: readonly string[], params: ReadonlyMap<string, string>): string {
  const query = [...params].map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
  return `#/${path.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

/** Percent-encoded, except for what may stand in a fragment and reads better as it is. */
function encode(text: string): string {
  return encodeURIComponent(text).replace(/%(?:2C|3A|2F|40|3B|24)/g, decodeURIComponent);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray %: as it was typed
  }
}

const current = signal<Address>(parseAddress(location.hash));
export const address: ReadonlySignal<Address> = current;
/** The first part of the path: which page is shown. */
export const page = computed(() => current.value.path[0] ?? "runs");

function follow(): void {
  if (formatAddress(current.peek().path, current.peek().params) !== location.hash) {
    current.value = parseAddress(location.hash);
  }
}
addEventListener("popstate", follow);
addEventListener("hashchange", follow);

export interface Manner {
  /** No new entry in the history: for what changes with every keystroke or every pixel of a drag. */
  replace?: boolean;
}

function go(next: Address, { replace = false }: Manner = {}): void {
  const hash = formatAddress(next.path, next.params);
  if (hash === formatAddress(current.peek().path, current.peek().params)) return;
  if (replace) history.replaceState(null, "", hash);
  else history.pushState(null, "", hash);
  current.value = next;
}

const shared = new Set<string>();

/**
 * The address of another page, for `<a href>` and `navigate`: with the parameters that all pages share, and `changes`.
 * An empty text takes a parameter out.
 */
export function link(path: string, changes: Record<string, string> = {}): string {
  const target = parseAddress(path);
  const kept = [...current.value.params].filter(([name]) => shared.has(name));
  return formatAddress(target.path, given([...kept, ...target.params, ...Object.entries(changes)]));
}

export function navigate(path: string, changes: Record<string, string> = {}, manner: Manner = {}): void {
  go(parseAddress(link(path, changes)), manner);
}

type ParamsListener = (changes: Readonly<Record<string, string>>) => void;
const listeners = new Set<ParamsListener>();

/** Tells of parameters that are set on this page; Back and links are no choice of anybody. */
export function onParams(listener: ParamsListener): void {
  listeners.add(listener);
}

/** Several parameters in one step of the history; an empty text takes one out. */
export function setParams(changes: Record<string, string>, manner: Manner = {}): void {
  const { path, params } = current.peek();
  for (const listener of listeners) listener(changes);
  go({ path, params: given([...params, ...Object.entries(changes)]) }, manner);
}

/** Of several values of a name the last; names whose value is empty are left out. */
function given(pairs: Iterable<readonly [string, string]>): ReadonlyMap<string, string> {
  return new Map([...new Map(pairs)].filter(([, value]) => value !== ""));
}

/** One parameter as a signal: setting `value` makes an entry in the history, `replace` does not. */
export class Param<T> {
  readonly #read: ReadonlySignal<T>;
  readonly #text: ReadonlySignal<string | undefined>;

  constructor(
    readonly name: string,
    readonly codec: Codec<T>,
    readonly fallback: T,
  ) {
    this.#text = computed(() => current.value.params.get(name));
    this.#read = computed(() => {
      const text = this.#text.value;
      return text === undefined ? fallback : (codec.parse(text) ?? fallback);
    });
  }

  get value(): T {
    return this.#read.value;
  }
  set value(value: T) {
    setParams({ [this.name]: this.format(value) });
  }
  /** As it stands in the address, if it does. */
  get text(): string | undefined {
    return this.#text.value;
  }
  /** Whether the address says something of it. */
  get given(): boolean {
    return this.#text.value !== undefined;
  }
  peek(): T {
    return this.#read.peek();
  }
  replace(value: T): void {
    setParams({ [this.name]: this.format(value) }, { replace: true });
  }
  /** As it is written in the address; empty for the default. */
  format(value: T): string {
    const text = this.codec.format(value);
    return text === this.codec.format(this.fallback) ? "" : text;
  }
}

/** A parameter of one page: links to other pages leave it out. */
export function pageParam<T>(name: string, codec: Codec<T>, fallback: T): Param<T> {
  return new Param(name, codec, fallback);
}

/** A parameter that goes along from page to page. */
export function sharedParam<T>(name: string, codec: Codec<T>, fallback: T): Param<T> {
  shared.add(name);
  return new Param(name, codec, fallback);
}

export const text: Codec<string> = { parse: (typed) => typed, format: (value) => value };
export const number: Codec<number> = {
  parse: (typed) => (typed.trim() !== "" && Number.isFinite(Number(typed)) ? Number(typed) : undefined),
  format: (value) => String(value),
};
export const flag: Codec<boolean> = {
  parse: (typed) => (typed === "1" ? true : typed === "0" ? false : undefined),
  format: (value) => (value ? "1" : "0"),
};
/** Words with commas between; a comma within a word is percent-encoded. The empty list is `-`. */
export const list: Codec<readonly string[]> = {
  parse: (typed) => (typed === "-" ? [] : typed.split(",").filter(Boolean).map(decode)),
  format: (value) => (value.length ? value.map((word) => word.replace(/[%,]/g, encodeURIComponent)).join(",") : "-"),
};
/** One of a few words. */
export function choice<T extends string>(...words: T[]): Codec<T> {
  return { parse: (typed) => words.find((word) => word === typed), format: (value) => value };
}
