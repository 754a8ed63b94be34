import { useMemo } from "preact/hooks";
import { flag, pageParam } from "../../address";
import { ChartCard } from "../../charts";
import { Button } from "../../ui/button";
import { plural } from "../../words";
import { PageTitle } from "../page-title";
import type { ComparedMetric, Comparison } from "./comparison";

const allParam = pageParam("all", flag, false);
const FIRST = 6;

/** Metrics as small multiples, runs overlaid. */
export function MetricCharts({ comparison: { runs, metrics } }: { comparison: Comparison }) {
  const ids = useMemo(() => runs.map(({ id }) => id), [runs.map(({ id }) => id).join("\n")]);
  const charts = metrics.filter(
    (metric) => metric.heldOutOf === null || !metrics.some(({ key }) => key === metric.heldOutOf),
  );
  const drawn = allParam.value ? charts : charts.slice(0, FIRST);
  if (charts.length === 0) return null;
  return (
    <section aria-label="Metrics">
      <PageTitle title="Metrics" note={plural(charts.length, "chart")}>
        {charts.length > FIRST && (
          <Button
            pressed={allParam.value}
            onClick={() => {
              allParam.value = !allParam.value;
            }}
          >
            {allParam.value ? `the first ${FIRST}` : `all ${charts.length}`}
          </Button>
        )}
      </PageTitle>
      <div class="small-multiples">
        {drawn.map((metric) => (
          <SmallChart key={metric.key} metric={metric} runs={ids} />
        ))}
      </div>
    </section>
  );
}

function SmallChart({ metric, runs }: { metric: ComparedMetric; runs: readonly string[] }) {
  const keys = useMemo(() => [metric.key, ...metric.heldOut], [metric.key, metric.heldOut.join("\n")]);
  const heldOut = useMemo(() => new Set(metric.heldOut), [metric.heldOut.join("\n")]);
  return <ChartCard runs={runs} keys={keys} heldOut={heldOut} />;
}
