/** The exponential mean over what a report holds, without bias to the first row, as the server's. */

/** Where the mean stands after some rows: it is `numerator / weight`. */
export interface Average {
  numerator: number;
  weight: number;
}

const WINDOWS = 5;

/** Of how many rows at least a smoothed line is drawn, as the server decides it: of fewer it would only lag behind them. */
export function leastRows(alpha: number): number {
  return Math.ceil((WINDOWS * (2 - alpha)) / alpha);
}

export function isSmoothed(rows: number, alpha: number): boolean {
  return alpha < 1 && rows >= leastRows(alpha);
}

/** `count` rows more whose mean is `mean`, as if each had that value. */
export function advance({ numerator, weight }: Average, mean: number, count: number, alpha: number): Average {
  const kept = (1 - alpha) ** count;
  return { numerator: mean + (numerator - mean) * kept, weight: 1 - (1 - weight) * kept };
}

/** The smoothed value of every row; those that are not finite are passed over. */
export function smoothRows(values: ArrayLike<number>, alpha: number, start?: Average): Float64Array {
  const smoothed = new Float64Array(values.length).fill(Number.NaN);
  let average = start ?? { numerator: 0, weight: 0 };
  for (let row = 0; row < values.length; row++) {
    const value = values[row] ?? Number.NaN;
    if (!Number.isFinite(value)) continue;
    average = advance(average, value, 1, alpha);
    smoothed[row] = average.numerator / average.weight;
  }
  return smoothed;
}

/** Of columns that stand for `counts` rows each: the mean of the smoothed values within each, as the server tells it. */
export function smoothColumns(means: ArrayLike<number>, counts: ArrayLike<number>, alpha: number): Float64Array {
  const smoothed = new Float64Array(means.length).fill(Number.NaN);
  const kept = 1 - alpha;
  let average: Average = { numerator: 0, weight: 0 };
  for (let column = 0; column < means.length; column++) {
    const mean = means[column] ?? Number.NaN;
    const count = counts[column] ?? 0;
    if (!count || !Number.isFinite(mean)) continue;
    const share = (kept * (1 - kept ** count)) / (count * alpha); // of what was before, on average over the rows
    const numerator = mean + (average.numerator - mean) * share;
    smoothed[column] = numerator / (1 - (1 - average.weight) * share);
    average = advance(average, mean, count, alpha);
  }
  return smoothed;
}

/** Where the mean stands after the first `rows` rows of columns. */
export function averageAfter(
  means: ArrayLike<number>,
  counts: ArrayLike<number>,
  rows: number,
  alpha: number,
): Average {
  let average: Average = { numerator: 0, weight: 0 };
  let left = rows;
  for (let column = 0; column < means.length && left > 0; column++) {
    const count = Math.min(left, counts[column] ?? 0);
    const mean = means[column] ?? Number.NaN;
    if (count && Number.isFinite(mean)) average = advance(average, mean, count, alpha);
    left -= counts[column] ?? 0;
  }
  return average;
}
