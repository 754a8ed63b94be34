/** What forks have from the runs they came from: lines that end where a fork's own begins. */
import type { Trace } from "./trace";

/**
 * Joins inherited lines to those that go on from them. Where an ancestor is among the runs that are `shown`, its line and
 * all before it are there already: no more is drawn than the way from its point at the fork to the fork's first.
 */
export function withJoints(traces: readonly Trace[], shown: readonly string[]): Trace[] {
  const isShown = ({ inherited }: Trace) => inherited !== null && shown.includes(inherited);
  return traces.filter((trace) => {
    if (trace.inherited === null) return true;
    const [next, ...later] = continuationsOf(trace, traces);
    if (!next) return !isShown(trace);
    if ([next, ...later].some(isShown)) return false;
    return trace.joinTo(next, isShown(trace)) || !isShown(trace);
  });
}

/** The lines of the same run and metric that begin where this one has ended, the next first. */
function continuationsOf(trace: Trace, traces: readonly Trace[]): Trace[] {
  const end = endOf(trace);
  return traces
    .filter(({ run, key, superseded }) => run === trace.run && key === trace.key && !superseded)
    .filter((other) => endOf(other) > end)
    .sort((a, b) => endOf(a) - endOf(b));
}

function endOf({ last }: Trace): number {
  return last?.[0] ?? Number.NEGATIVE_INFINITY;
}
