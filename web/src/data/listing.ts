/** The rows of the table as a list shows them: with the heads of groups, or each below its parent. */
import { computed } from "@preact/signals";
import { familyTree } from "./family";
import { toggle } from "./selection";
import { columns, family, filter, foldedGroups, group, NO_COLUMNS, reverse, sort, table } from "./state";
import type { ColumnInfo, Figure, RunRow, RunTable } from "./types";

export interface GroupItem {
  kind: "group";
  key: string;
  group: RunTable["groups"][number];
  folded: boolean;
}
export interface RunItem {
  kind: "run";
  key: string;
  row: RunRow;
  /** Lines of the family tree before the name. */
  lines: string;
  /** A parent that is not listed. */
  gone: string | null;
  /** The best value of its group, where there are groups. */
  groupBest: Figure;
}
export type Item = GroupItem | RunItem;

/** `folded`: the keys of groups of which only the head is listed. */
export function listItems(
  { rows, groups }: Pick<RunTable, "rows" | "groups">,
  asTree: boolean,
  folded: readonly string[] = [],
): Item[] {
  if (groups.length) {
    return groups.flatMap((group): Item[] => {
      const isFolded = folded.includes(group.key);
      const members = isFolded ? [] : rows.slice(group.first, group.first + group.count);
      return [
        { kind: "group", key: `group ${group.key}`, group, folded: isFolded },
        ...members.map((row) => runItem(row, group.best)),
      ];
    });
  }
  if (asTree) return familyTree(rows).map(({ row, lines, gone }) => ({ ...runItem(row), lines, gone }));
  return rows.map((row) => runItem(row));
}

function runItem(row: RunRow, groupBest: Figure = null): RunItem {
  return { kind: "run", key: row.id, row, lines: "", gone: null, groupBest };
}

/** The runs of a group, those of a folded one too. */
export function membersOf(group: RunTable["groups"][number]): string[] {
  const rows = table.peek()?.rows ?? [];
  return rows.slice(group.first, group.first + group.count).map((row) => row.id);
}

export function toggleFold(key: string): void {
  foldedGroups.value = toggle(foldedGroups.peek(), key);
}

/** What makes the list another one, and not the same with other values. */
export const listKey = computed(() =>
  JSON.stringify([filter.value, sort.value, reverse.value, group.value, family.value]),
);
export const items = computed(() => (table.value ? listItems(table.value, family.value, foldedGroups.value) : []));
/** Runs in the order of the list. */
export const order = computed(() => items.value.flatMap((item) => (item.kind === "run" ? [item.row.id] : [])));

export interface ShownColumn extends ColumnInfo {
  /** Where in `RunRow.values` it stands. */
  index: number;
}

/** The columns somebody chose; without a choice those the server thinks tell the runs apart. */
export const shownColumns = computed<ShownColumn[]>(() => {
  const all = (table.value?.columns ?? []).map((column, index) => ({ ...column, index }));
  const chosen = columns.value;
  if (!chosen.length) return all;
  // Beside what was chosen the server may name more: the settings that differ.
  return all.slice(0, chosen.filter((term) => term !== NO_COLUMNS).length);
});

/** Of each column of results, the best value there is in it. */
export const bestValues = computed(() => {
  const best = new Map<number, number>();
  for (const column of shownColumns.value) {
    if (column.goal === null) continue;
    let value: number | undefined;
    for (const row of table.value?.rows ?? []) {
      const candidate = row.values[column.index];
      if (typeof candidate !== "number") continue;
      if (value === undefined || (column.goal === "min" ? candidate < value : candidate > value)) value = candidate;
    }
    if (value !== undefined && (table.value?.rows.length ?? 0) > 1) best.set(column.index, value);
  }
  return best;
});
