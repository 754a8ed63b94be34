// A run's settings against its parent's and its recipe's defaults.

import { count, exact } from "../../words";

export interface SettingRow {
  name: string; // "config.lr"
  value: unknown;
  other: unknown; // what it is compared with; undefined: not there
  differs: boolean;
}

/** Settings that differ from `others` first, then the rest, each by name; those that only `others` has among them. */
export function settingRows(settings: Record<string, unknown>, others: Record<string, unknown> | null): SettingRow[] {
  const names = new Set(Object.keys(settings));
  if (others) for (const name of Object.keys(others)) names.add(name);
  const rows = [...names].map((name) => ({
    name,
    value: settings[name],
    other: others?.[name],
    differs: others !== null && !equalSettings(settings[name], others[name]),
  }));
  return rows.sort((a, b) => Number(b.differs) - Number(a.differs) || compareNames(a.name, b.name));
}

/** The names under which not all runs' settings are the same, in the order of the names. */
export function differingNames(runs: readonly Record<string, unknown>[]): string[] {
  const names = new Set(runs.flatMap((settings) => Object.keys(settings)));
  return [...names]
    .filter((name) => runs.some((settings) => !equalSettings(settings[name], runs[0]?.[name])))
    .sort(compareNames);
}

export function equalSettings(a: unknown, b: unknown): boolean {
  return a === b || JSON.stringify(a) === JSON.stringify(b);
}

/** The recipe and what was asked for before the model's shape. */
function compareNames(a: string, b: string): number {
  const rankOf = (name: string) => (name.startsWith("config.") ? 1 : name.startsWith("model.") ? 2 : 0);
  return rankOf(a) - rankOf(b) || a.localeCompare(b, "en", { numeric: true });
}

/** A setting as people read it, every digit kept. */
export function settingText(value: unknown): string {
  if (value === undefined || value === null) return "–";
  if (value === true) return "yes";
  if (value === false) return "no";
  if (typeof value === "string") return value;
  if (typeof value !== "number") return JSON.stringify(value);
  return Number.isInteger(value) && Math.abs(value) < 1e15 ? count(value) : exact(value);
}

/** The same in few characters, for tables of many runs. */
export function shortSetting(value: unknown): string {
  const text = settingText(value);
  if (typeof value !== "number" || Number.isInteger(value) || text.length <= 9) return text;
  return settingText(Number(value.toPrecision(4)));
}
