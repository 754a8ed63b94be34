/** Runs below those they were forked from, as `linnet runs --tree` draws them. */
import type { RunRow } from "./types";

export interface FamilyMember {
  row: RunRow;
  /** Drawn before the name: `│  └─ `. */
  lines: string;
  /** How deep below its eldest ancestor. */
  depth: number;
  /** A parent that is not in the list. */
  gone: string | null;
}

/** Every run once, each below its parent; families and children in the order that the rows came in. */
export function familyTree(rows: readonly RunRow[]): FamilyMember[] {
  const known = new Map(rows.map((row) => [row.id, row]));
  const children = new Map<string, RunRow[]>();
  const roots: RunRow[] = [];
  for (const row of rows) {
    if (row.parent !== null && known.has(row.parent) && !descends(row.parent, row.id, known)) {
      const siblings = children.get(row.parent);
      if (siblings) siblings.push(row);
      else children.set(row.parent, [row]);
    } else roots.push(row);
  }
  const members: FamilyMember[] = [];
  const stack: { row: RunRow; before: string; depth: number; last: boolean }[] = roots
    .map((row) => ({ row, before: "", depth: 0, last: true }))
    .reverse();
  for (let next = stack.pop(); next; next = stack.pop()) {
    const { row, before, depth, last } = next;
    const lines = depth === 0 ? "" : before + (last ? "└─ " : "├─ ");
    const gone = depth === 0 && row.parent !== null && !known.has(row.parent) ? row.parent : null;
    members.push({ row, lines, depth, gone });
    const below = depth === 0 ? "" : before + (last ? "   " : "│  ");
    const own = children.get(row.id) ?? [];
    for (let index = own.length - 1; index >= 0; index--) {
      const child = own[index];
      if (child) stack.push({ row: child, before: below, depth: depth + 1, last: index === own.length - 1 });
    }
  }
  return members;
}

/** Is `ancestor` an ancestor of a run, or the run itself? Manifests may say anything, a circle too. */
function descends(id: string, ancestor: string, known: ReadonlyMap<string, RunRow>): boolean {
  const seen = new Set<string>();
  for (let at: string | null = id; at !== null && !seen.has(at); at = known.get(at)?.parent ?? null) {
    if (at === ancestor) return true;
    seen.add(at);
  }
  return false;
}
