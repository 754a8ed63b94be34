/** Rows of a trace that stick out: a smoothed line, or the mean of a column, would hide them. */
import type { Trace } from "./trace";

const SPIKE = 6; // times the usual height of the band beside it
const NEIGHBOURS = 12; // columns on either side that say what is usual
const MOST_SPIKES = 200;

/**
 * Rows that reach much farther from the line than those beside them do on average: of a column the least and the
 * greatest from its mean, of a single row its value from the smoothed line.
 */
export function findSpikes(trace: Trace): number[] {
  const { length, low, high, mean, line, exact } = trace;
  const rows: number[] = [];
  if (exact && trace.smooth === null) return rows; // the line itself shows them
  let sum = 0;
  let amount = 0;
  const reach = (at: number) => {
    const least = low[at] ?? 0;
    const most = high[at] ?? 0;
    // Not from the smoothed line where the column has a mean: in heavy smoothing it lags, as far as a spike reaches.
    const middle = (least === most ? line[at] : mean[at]) ?? 0;
    const extent = Math.max(most - middle, middle - least);
    return Number.isFinite(extent) ? extent : 0;
  };
  for (let at = 0; at < Math.min(NEIGHBOURS, length); at++, amount++) sum += reach(at);
  for (let at = 0; at < length && rows.length < MOST_SPIKES; at++) {
    const entering = at + NEIGHBOURS;
    const leaving = at - NEIGHBOURS - 1;
    if (entering < length) {
      sum += reach(entering);
      amount++;
    }
    if (leaving >= 0) {
      sum -= reach(leaving);
      amount--;
    }
    const own = reach(at);
    const usual = amount > 1 ? Math.max(0, sum - own) / (amount - 1) : own;
    if (own > SPIKE * usual && own > 0 && amount > 2) rows.push(at);
  }
  return rows;
}
