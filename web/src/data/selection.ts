/** Which runs are marked, as clicks and keys change it. Marked runs keep the order in which they were marked. */

export function toggle(marked: readonly string[], id: string): string[] {
  return marked.includes(id) ? marked.filter((other) => other !== id) : [...marked, id];
}

/** The runs from one row to another, both included, whichever comes first; only `to` where `from` is not listed. */
export function between(order: readonly string[], from: string | null, to: string): string[] {
  const begin = from === null ? -1 : order.indexOf(from);
  const end = order.indexOf(to);
  if (end < 0) return [];
  if (begin < 0) return [to];
  return order.slice(Math.min(begin, end), Math.max(begin, end) + 1);
}

export function add(marked: readonly string[], ids: readonly string[]): string[] {
  return [...new Set([...marked, ...ids])];
}

/** Marks all; where all are marked, none. */
export function toggleAll(marked: readonly string[], ids: readonly string[]): string[] {
  const chosen = new Set(marked);
  if (!ids.every((id) => chosen.has(id))) return add(marked, ids);
  const listed = new Set(ids);
  return marked.filter((id) => !listed.has(id));
}

/** The row that stands `step` rows from another; at the ends it stays. */
export function neighbour(order: readonly string[], id: string | null, step: number): string | null {
  if (!order.length) return null;
  const listed = id === null ? -1 : order.indexOf(id);
  const at = listed >= 0 ? listed : step > 0 ? -1 : order.length; // from nowhere: in at the end it comes from
  return order[Math.min(order.length - 1, Math.max(0, at + step))] ?? null;
}
