// The plan of a run beside what happened.
import type { RunDetail } from "../../data/types";
import { asNumber, compact, count, duration, number, size } from "../../words";

export interface PlanRow {
  name: string;
  plan: string;
  happened: string;
  /** How far what happened is from the plan, in words; empty where the run is not done or nothing is known. */
  difference: string;
}

/** What a plan said, line by line; what came of it where that is known. */
export function planRows(detail: RunDetail): PlanRow[] {
  const { plan, row, elapsed } = detail;
  const done = row.status === "completed";
  const unit = typeof plan.unit === "string" ? plan.unit : "tokens";
  const before = typeof detail.manifest.parent_step === "number" ? detail.manifest.parent_step : 0; // a fork counts on
  const step = row.step === null ? null : row.step - before;
  const high = (key: string) => finite(asNumber(detail.metrics.find((metric) => metric.key === key)?.high ?? null));
  const onGpu = typeof plan.device === "string" && plan.device.startsWith("cuda");
  const rows: PlanRow[] = [];
  const add = (
    name: string,
    planned: unknown,
    happened: number | null,
    text: (value: number) => string,
    whole = done,
  ) => {
    const expected = typeof planned === "number" ? finite(planned) : null;
    if (expected === null) return;
    rows.push({
      name,
      plan: text(expected),
      happened: happened === null ? "–" : text(happened),
      difference: happened === null || !whole ? "" : differenceText(expected, happened),
    });
  };
  add("steps", plan.steps, step, count);
  add("time", plan.seconds, elapsed, duration);
  add("a step", plan.step_seconds, step ? elapsed / step : null, shortDuration, true);
  add(unit, plan.planned, null, compact);
  add("passes through the data", plan.epochs, null, (value) => number(value, 3));
  add("data", plan.corpus, null, (value) => `${compact(value)} ${unit}`);
  add("parameters", plan.parameters, null, compact);
  add("of them embedding", plan.embedding, null, compact);
  add("arithmetic", plan.flops, null, (value) => `${compact(value)}FLOP`.replace(/([TGMk])FLOP/, " $1FLOP"));
  add("memory", plan.memory, high(onGpu ? "sys/gpu0/memory_used" : "sys/process/rss"), size);
  add("disk", plan.disk, null, size);
  return rows;
}

function shortDuration(seconds: number): string {
  return seconds < 1 ? `${number(seconds * 1000, 3)} ms` : duration(seconds);
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

function differenceText(expected: number, happened: number): string {
  if (expected === 0) return "";
  const share = happened / expected - 1;
  if (Math.abs(share) < 0.005) return "as planned";
  return `${Math.abs(share * 100).toFixed(Math.abs(share) < 0.1 ? 1 : 0)} % ${share > 0 ? "more" : "less"}`;
}
