/** Which metrics have a chart, in which sections and order: those pinned, the results, the rest, then by prefix. */
import type { MetricInfo, RunMetrics } from "../../data/types";
import { number } from "../../words";
import type { ChartPreferences } from "./preferences";

/** One chart: its metric, and what is drawn with it. */
export interface ChartEntry {
  /** The metric that names it. */
  readonly key: string;
  readonly keys: readonly string[];
  /** Of `keys`, what is measured on held-out data. */
  readonly heldOut: readonly string[];
  readonly hidden: boolean;
  readonly pinned: boolean;
  /** The value it has in every row of every run; null where it changes. */
  readonly constant: string | null;
}

export interface ChartSection {
  readonly name: string;
  readonly charts: readonly ChartEntry[];
  /** What has no chart because it never changes. */
  readonly constants: readonly ChartEntry[];
  /** What somebody hid. */
  readonly hidden: readonly ChartEntry[];
}

/** What is looked for, for as long as somebody looks: names, and whether what is hidden has charts too. */
export interface ChartFilter {
  readonly words: string;
  readonly showHidden: boolean;
}

const LOSSES = ["loss", "train/loss", "train_loss"]; // the metric to show when there is room for one
const HELD_OUT = /^(val|valid|validation|test|eval|evaluation|dev|held_?out)\//;
const LEAST_ROWS = 3; // of a metric that is said to be constant

/** The sections of these runs. Empty ones are left out. */
export function chartSections(
  runs: readonly RunMetrics[],
  preferences: ChartPreferences,
  filter: ChartFilter,
): ChartSection[] {
  const metrics = mergedMetrics(runs);
  const entries = entriesOf(metrics, preferences);
  const main = mainMetric([...metrics.keys()]);
  const orderOf = new Map(preferences.order.map((key, at) => [key, at]));
  const sections = new Map<string, ChartEntry[]>();
  for (const entry of entries) {
    const name = entry.pinned ? "pinned" : sectionOf(entry, metrics, main);
    const section = sections.get(name);
    if (section) section.push(entry);
    else sections.set(name, [entry]);
  }
  // A heading and a row for one chart would leave a hole beside it.
  for (const [name, members] of [...sections]) {
    if (members.length === 1 && !FIXED.includes(name)) {
      sections.set("training", [...(sections.get("training") ?? []), ...members]);
      sections.delete(name);
    }
  }
  const names = [...FIXED, ...[...sections.keys()].filter((name) => !FIXED.includes(name) && name !== "sys"), "sys"];
  return names.flatMap((name) => {
    const members = sections.get(name) ?? [];
    const rank =
      name === "pinned" ? rankIn(preferences.pinned) : (key: string) => orderOf.get(key) ?? firstRank(key, main);
    const ordered = [...members].sort((a, b) => rank(a.key) - rank(b.key));
    const section = split(name, ordered, preferences, filter);
    return section.charts.length || section.constants.length || section.hidden.length ? [section] : [];
  });
}

const FIXED = ["pinned", "results", "training"];

function rankIn(names: readonly string[]): (key: string) => number {
  return (key) => names.indexOf(key);
}

/** What was never moved stands behind what was, the main metric first of all. */
function firstRank(key: string, main: string | null): number {
  return key === main ? -1 : Number.MAX_SAFE_INTEGER;
}

function split(
  name: string,
  entries: readonly ChartEntry[],
  preferences: ChartPreferences,
  { words, showHidden }: ChartFilter,
): ChartSection {
  const matching = entries.filter((entry) => !words || entry.keys.some((key) => matches(key, words)));
  const visible = (entry: ChartEntry) =>
    showHidden || entry.pinned || (!entry.hidden && (entry.constant === null || preferences.constants || words !== ""));
  return {
    name,
    charts: matching.filter(visible),
    constants: matching.filter((entry) => entry.constant !== null && !entry.hidden && !visible(entry)),
    hidden: matching.filter((entry) => entry.hidden && !visible(entry)),
  };
}

function entriesOf(metrics: ReadonlyMap<string, MetricInfo>, preferences: ChartPreferences): ChartEntry[] {
  const drawnWith = new Map<string, string[]>();
  for (const { key, held_out_of: training } of metrics.values()) {
    if (training === null || !metrics.has(training) || preferences.pinned.includes(key)) continue;
    drawnWith.set(training, [...(drawnWith.get(training) ?? []), key]);
  }
  const elsewhere = new Set([...drawnWith.values()].flat());
  return [...metrics.values()]
    .filter(({ key }) => !elsewhere.has(key))
    .map((metric) => {
      const heldOut = drawnWith.get(metric.key) ?? (HELD_OUT.test(metric.key) ? [metric.key] : []);
      return {
        key: metric.key,
        keys: [metric.key, ...(drawnWith.get(metric.key) ?? [])],
        heldOut,
        hidden: preferences.hidden.includes(metric.key),
        pinned: preferences.pinned.includes(metric.key),
        constant: metric.constant && !drawnWith.has(metric.key) ? number(metric.last) : null,
      };
    });
}

/** One list of the metrics of all runs; constant is what never changes within any of them and is no result. */
function mergedMetrics(runs: readonly RunMetrics[]): Map<string, MetricInfo> {
  const merged = new Map<string, MetricInfo>();
  for (const { metrics } of runs) {
    for (const metric of metrics) {
      const before = merged.get(metric.key);
      const constant = metric.constant && metric.goal === null && metric.rows >= LEAST_ROWS;
      merged.set(metric.key, {
        ...metric,
        constant: constant && (before?.constant ?? true) && (before === undefined || before.last === metric.last),
        held_out_of: before?.held_out_of ?? metric.held_out_of,
      });
    }
  }
  return merged;
}

/** The metric to show when there is room for one: the loss, else one that is called so, else the first. */
export function mainMetric(keys: readonly string[]): string | null {
  const loss = LOSSES.find((key) => keys.includes(key));
  if (loss) return loss;
  const shown = keys.filter((key) => !key.startsWith("sys/"));
  return shown.find((key) => key.toLowerCase().includes("loss")) ?? shown[0] ?? null;
}

function sectionOf(entry: ChartEntry, metrics: ReadonlyMap<string, MetricInfo>, main: string | null): string {
  if (entry.key === main) return "results";
  const prefix = entry.key.includes("/") ? entry.key.slice(0, entry.key.indexOf("/")) : "";
  const isResult = metrics.get(entry.key)?.goal != null;
  if (isResult && (!prefix || HELD_OUT.test(entry.key) || prefix === "train")) return "results";
  return prefix || "training";
}

/** Do all words of a filter occur in a name? A word with a star or a question mark is a pattern for all of it. */
export function matches(name: string, wanted: string): boolean {
  const text = name.toLowerCase();
  return wanted
    .toLowerCase()
    .split(/\s+/)
    .filter(Boolean)
    .every((word) => (/[*?]/.test(word) ? pattern(word).test(text) : text.includes(word)));
}

function pattern(word: string): RegExp {
  const escaped = word
    .replace(/[.+^${}()|[\]\\]/g, "\\$&")
    .replace(/\*/g, ".*")
    .replace(/\?/g, ".");
  return new RegExp(`^${escaped}$`);
}
