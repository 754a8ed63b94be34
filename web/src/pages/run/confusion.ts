// What a classifier takes for what: the matrix, and precision, recall and F1 of each class.

export interface Confusion {
  labels: string[];
  counts: number[][]; // counts[label][guess]
}

/** A row of the per-class table; null where it is not known or divides by none. */
export interface ClassFigures {
  label: string;
  support: number | null;
  recall: number | null;
  precision: number | null;
  f1: number | null;
  confusedWith: string | null; // the guess it was most often mistaken for
}

export const MOST_CLASSES = 100;

/**
 * A table as a confusion matrix: square, numbers only, its columns named as its rows. Null for any other table.
 * The first column holds the labels.
 */
export function confusionOf(columns: readonly string[], rows: readonly (readonly unknown[])[]): Confusion | null {
  const labels = columns.slice(1).map(String);
  if (labels.length < 2 || labels.length > MOST_CLASSES || rows.length !== labels.length) return null;
  const counts: number[][] = [];
  for (const [index, row] of rows.entries()) {
    const cells = row.slice(1);
    if (String(row[0]) !== labels[index] || cells.length !== labels.length) return null;
    if (!cells.every((cell): cell is number => typeof cell === "number" && cell >= 0)) return null;
    counts.push(cells);
  }
  return { labels, counts };
}

export function classFigures({ labels, counts }: Confusion): ClassFigures[] {
  const guessed = labels.map((_, guess) => counts.reduce((total, row) => total + (row[guess] ?? 0), 0));
  return labels.map((label, index) => {
    const row = counts[index] ?? [];
    const support = row.reduce((total, count) => total + count, 0);
    const right = row[index] ?? 0;
    const recall = support ? right / support : null;
    const taken = guessed[index] ?? 0;
    const precision = taken ? right / taken : null;
    const f1 =
      recall !== null && precision !== null && recall + precision > 0
        ? (2 * recall * precision) / (recall + precision)
        : null;
    const wrong = row.map((count, guess) => (guess === index ? 0 : count));
    const most = Math.max(0, ...wrong);
    const confusedWith = most ? (labels[wrong.indexOf(most)] ?? null) : null;
    return { label, support, recall, precision, f1, confusedWith };
  });
}

/** How many of all were right. */
export function accuracyOf({ counts }: Confusion): { right: number; total: number } {
  let right = 0;
  let total = 0;
  counts.forEach((row, index) => {
    right += row[index] ?? 0;
    total += row.reduce((count, value) => count + value, 0);
  });
  return { right, total };
}
