/** What may come next in a filter: names of settings and metrics, and the words that runs are called by. */
import type { RunRow } from "../data/types";
import { matchScore } from "../fuzzy";

export interface Vocabulary {
  settings: readonly string[];
  metrics: readonly string[];
  rows: readonly RunRow[];
}

export interface Suggestion {
  /** What stands in place of the word that is being typed. */
  text: string;
  kind: "metric" | "setting" | "word" | "value";
}

const MOST = 8;
const WORDS: Record<string, (row: RunRow) => readonly (string | null)[]> = {
  status: (row) => [row.status],
  tag: (row) => row.tags,
  recipe: (row) => [row.recipe],
  experiment: (row) => [row.experiment],
  group: (row) => [row.group],
  parent: (row) => [row.parent],
};

/** The word before the caret: from the last blank or parenthesis on. */
export function wordBefore(text: string, caret: number): string {
  return /[^\s()]*$/.exec(text.slice(0, caret))?.[0] ?? "";
}

/** What may be meant by the word before the caret, the likeliest first. A word that is complete has no suggestions. */
export function suggestions(word: string, vocabulary: Vocabulary): Suggestion[] {
  if (!word) return [];
  const value = /^(\w+):(.*)$/.exec(word);
  if (value) return valuesOf(value[1] ?? "", value[2] ?? "", vocabulary.rows);
  if (/[<>=!~:]/.test(word)) return [];
  const settings = vocabulary.settings
    .filter((name) => !(name in WORDS))
    .map((name) => shortName(name, vocabulary.settings));
  const all: Suggestion[] = [
    ...vocabulary.metrics.map((text): Suggestion => ({ text, kind: "metric" })),
    ...Object.keys(WORDS).map((name): Suggestion => ({ text: `${name}:`, kind: "word" })),
    ...settings.map((text): Suggestion => ({ text, kind: "setting" })),
  ];
  const unique = [...new Map(all.map((entry) => [entry.text, entry])).values()];
  return ranked(word, unique).filter(({ text }) => text !== word);
}

function valuesOf(name: string, typed: string, rows: readonly RunRow[]): Suggestion[] {
  const read = WORDS[name === "tags" ? "tag" : name];
  if (!read) return [];
  const values = new Set(rows.flatMap((row) => read(row)).filter((value): value is string => !!value));
  const entries = [...values].sort().map((text): Suggestion => ({ text: `${name}:${quoted(text)}`, kind: "value" }));
  if (!typed) return entries.slice(0, MOST);
  return ranked(typed, entries).filter(({ text }) => text !== `${name}:${typed}`);
}

function ranked(word: string, entries: readonly Suggestion[]): Suggestion[] {
  return entries
    .map((entry) => ({ entry, score: matchScore(word, entry.text) }))
    .filter(({ score }) => score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, MOST)
    .map(({ entry }) => entry);
}

/** The last part of a setting's name where that says which: `lr` for `config.lr`. */
function shortName(name: string, all: readonly string[]): string {
  const last = name.split(".").at(-1) ?? name;
  return all.filter((other) => other === last || other.endsWith(`.${last}`)).length === 1 ? last : name;
}

function quoted(text: string): string {
  return /[\s()"]/.test(text) ? `"${text.replaceAll('"', "")}"` : text;
}
