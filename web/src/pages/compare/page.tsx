import { useMemo } from "preact/hooks";
import { choice, link, pageParam } from "../../address";
import { useLoadedTogether } from "../../data/loaded";
import { shown, source } from "../../data/state";
import { Empty } from "../../ui/empty";
import { RunLabel } from "../../ui/run-label";
import { Segmented } from "../../ui/segmented";
import { plural } from "../../words";
import { PageTitle } from "../page-title";
import { compareRuns, type Taken } from "./comparison";
import { CorrelationTable } from "./correlation-view";
import { MetricCharts } from "./metric-charts";
import { ParallelView } from "./parallel-view";
import { ResultTable } from "./result-table";
import { ScatterView } from "./scatter-view";
import { SettingsTable } from "./settings-table";
import "./compare.css";

export const takenParam = pageParam<Taken>("take", choice("best", "last"), "best");
const MOST_NAMED = 16;

/** Runs against each other: settings, metrics, results, and how the first go together with the last. */
export function ComparePage() {
  const runs = shown.value;
  const { value, problem } = useLoadedTogether(runs, "compare", (signal) => source().metrics(runs, signal));
  const comparison = useMemo(() => compareRuns(value ?? []), [value]);
  if (runs.length === 0) return <Empty title="No runs are selected">Mark some in the list of runs.</Empty>;
  if (!value) return <p class="content loading">{problem ?? `reading ${plural(runs.length, "run")} …`}</p>;
  return (
    <div class="content compare">
      <PageTitle page title="Compare" note={plural(comparison.runs.length, "run")}>
        <Segmented
          label="Which value of a run"
          options={["best", "last"]}
          names={{ best: "best values", last: "last values" }}
          value={takenParam.value}
          onChange={(taken) => {
            takenParam.value = taken;
          }}
        />
      </PageTitle>
      {problem && <p class="warn">{problem}; what is shown is what was known.</p>}
      <div class="compare-runs">
        {comparison.runs.slice(0, MOST_NAMED).map(({ id }) => (
          <a key={id} href={link(`/run/${encodeURIComponent(id)}`)}>
            <RunLabel id={id} />
          </a>
        ))}
        {comparison.runs.length > MOST_NAMED && (
          <span class="faint">and {comparison.runs.length - MOST_NAMED} more</span>
        )}
      </div>
      {comparison.runs.length < 2 && <p class="dim">Mark a second run to compare it with.</p>}
      <SettingsTable comparison={comparison} />
      <MetricCharts comparison={comparison} />
      <ResultTable comparison={comparison} taken={takenParam.value} />
      <ScatterView comparison={comparison} taken={takenParam.value} />
      <ParallelView comparison={comparison} taken={takenParam.value} />
      <CorrelationTable comparison={comparison} taken={takenParam.value} />
    </div>
  );
}
