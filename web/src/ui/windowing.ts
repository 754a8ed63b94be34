/** Which rows of a long list are on the screen: rows of different heights, found by bisection. */

/** Where each row begins, and one more for the end of the list. */
export function rowOffsets(heights: Iterable<number>, count: number): Float64Array {
  const offsets = new Float64Array(count + 1);
  let row = 0;
  for (const height of heights) {
    if (row === count) break;
    offsets[row + 1] = (offsets[row] ?? 0) + height;
    row++;
  }
  return offsets;
}

/** The last row that begins at or above `position`; the first and the last row beyond the ends. */
export function rowAt(offsets: Float64Array, position: number): number {
  let low = 0;
  let high = offsets.length - 2;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if ((offsets[middle] ?? 0) <= position) low = middle;
    else high = middle - 1;
  }
  return Math.max(0, low);
}

/** The rows from `first` up to, not including, `end` that a view shows, and `spare` more on each side. */
export function visibleRows(
  offsets: Float64Array,
  top: number,
  height: number,
  spare: number,
): [first: number, end: number] {
  const count = offsets.length - 1;
  if (count <= 0) return [0, 0];
  const first = Math.max(0, rowAt(offsets, top) - spare);
  const end = Math.min(count, rowAt(offsets, top + Math.max(0, height - 1)) + 1 + spare);
  return [first, end];
}

/** How far to scroll so that a row is seen whole; as it is where it already is. */
export function scrollToShow(offsets: Float64Array, row: number, top: number, height: number): number {
  const begin = offsets[row] ?? 0;
  const end = offsets[row + 1] ?? begin;
  if (begin < top) return begin;
  return end > top + height ? end - height : top;
}
