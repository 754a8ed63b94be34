/** Which lines a chart has: the name, colour and dashes of each trace, or the mean of a group. */
import { nameOf, paintOf, token } from "../data/state";
import type { TraceSet } from "./feed";
import type { StyledTrace } from "./paint";
import { groupRuns, meanTrace, type RunGroup } from "./spread";
import type { Trace } from "./trace";
import type { ChartView } from "./view";

/** What a chart is of. */
export interface ChartSubject {
  readonly runs: readonly string[];
  /** Runs that these are compared with: their lines are faint, and lie below. */
  readonly baselines?: readonly string[];
  /** The metric of the chart, and those drawn with it. */
  readonly keys: readonly string[];
  /** Of these, what is measured on held-out data: dashed. */
  readonly heldOut: ReadonlySet<string>;
  /** For groups: what each run was set to. */
  readonly settings: ReadonlyMap<string, Readonly<Record<string, unknown>>>;
}

/** The lines of a set of traces. */
export function styledTraces(set: TraceSet, subject: ChartSubject, view: ChartView): StyledTrace[] {
  const { keys, heldOut, runs } = subject;
  const groups = groupsOf(subject, view);
  if (groups.length) {
    return keys.flatMap((key) => groups.flatMap((group) => groupLine(set, subject, view, key, group)));
  }
  const several = keys.length > 1 && keys.some((key) => !heldOut.has(key) && key !== keys[0]);
  return set.traces.map((trace) => {
    const isBaseline = !runs.includes(trace.run);
    const label = lineLabel(nameOf(trace.run), trace, several, heldOut);
    const own = several && runs.length === 1 ? paletteColour(keys.indexOf(trace.key)) : paintOf(trace.run);
    return {
      trace,
      label: isBaseline ? `${label} · baseline` : label,
      colour: isBaseline ? token("ghost") : own,
      dashed: heldOut.has(trace.key) && keys.length > 1,
      spread: false,
      isBaseline,
    };
  });
}

/** The groups of which means are drawn; none where each run is a line. */
export function groupsOf({ runs, settings }: Pick<ChartSubject, "runs" | "settings">, view: ChartView): RunGroup[] {
  return groupRuns(runs, settings, view.groupBy.value);
}

/** The mean of a group; no line where none of its runs has the metric. */
function groupLine(
  set: TraceSet,
  { keys, heldOut }: ChartSubject,
  view: ChartView,
  key: string,
  group: RunGroup,
): StyledTrace[] {
  const members = set.traces.filter((trace) => trace.key === key && trace.grows && group.runs.includes(trace.run));
  if (!members.length) return [];
  const isHeldOut = heldOut.has(key) && keys.length > 1;
  return [
    {
      trace: meanTrace(members, group, set.grid, view.spread.value),
      label: `${groupName(group)}${isHeldOut ? ", held out" : ""}`,
      colour: groupColour(group),
      dashed: isHeldOut,
      spread: group.runs.length > 1,
    },
  ];
}

/** What a group is called where it is one of several. */
export function groupName({ label, runs }: RunGroup): string {
  return runs.length > 1 ? `${label} (${runs.length})` : label;
}

/** That of its first run: any other would be the colour of a run of another group. */
export function groupColour({ runs: [first] }: RunGroup): string {
  return first === undefined ? token("ghost") : paintOf(first);
}

/** The trace that has the best value of a metric. */
export function bestOf(styled: readonly StyledTrace[], key: string): StyledTrace | null {
  let best: StyledTrace | null = null;
  for (const candidate of styled) {
    const { trace, isBaseline } = candidate;
    if (isBaseline || trace.key !== key || !trace.best || trace.goal === null || trace.superseded) continue;
    const value = trace.best[1];
    const other = best?.trace.best?.[1];
    if (other === undefined || (trace.goal === "min" ? value < other : value > other)) best = candidate;
  }
  return best;
}

/** The trace that has the best point of a chart: of held-out figures, which are what counts, where there are some. */
export function bestPoint(styled: readonly StyledTrace[], keys: readonly string[]): StyledTrace | null {
  for (const key of [...keys.slice(1), ...keys.slice(0, 1)]) {
    const best = bestOf(styled, key);
    if (best) return best;
  }
  return null;
}

/** The lines that stand in a legend: what a fork inherits has its colour. */
export function namedLines(styled: readonly StyledTrace[]): StyledTrace[] {
  return styled.filter(({ trace }) => trace.inherited === null);
}

function paletteColour(at: number): string {
  return token(`c${(at % 12) + 1}`);
}

function lineLabel(run: string, trace: Trace, several: boolean, heldOut: ReadonlySet<string>): string {
  const replaced = trace.superseded ? ", replaced" : "";
  const origin = trace.inherited === null ? "" : ` · from ${nameOf(trace.inherited)}`;
  if (several) return `${run} · ${trace.key}${replaced}${origin}`;
  return `${run}${heldOut.has(trace.key) ? " · held out" : ""}${replaced}${origin}`;
}
