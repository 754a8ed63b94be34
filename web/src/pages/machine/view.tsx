import { useMemo } from "preact/hooks";
import { choice, link, pageParam } from "../../address";
import { ChartCard, ownView, setAxis, Zoomed } from "../../charts";
import { useLoadedTogether } from "../../data/loaded";
import { source } from "../../data/state";
import type { Axis, RunMetrics } from "../../data/types";
import { Empty } from "../../ui/empty";
import { RunLabel } from "../../ui/run-label";
import { Segmented } from "../../ui/segmented";
import { PageTitle } from "../page-title";
import { latestColumns, type MachineFigure, machineFigures, rankRows } from "./figures";
import "../../ui/beside.css";
import "./machine.css";

const axisParam = pageParam<Axis>("axis", choice<Axis>("relative time", "wall time", "step"), "relative time");
const view = ownView({ axis: axisParam });
const MOST_RUNS = 50;

/** The machine's figures as small multiples, and the latest of them in a table. */
export function MachineView({ runs }: { runs: readonly string[] }) {
  const asked = runs.slice(0, MOST_RUNS);
  const { value, problem } = useLoadedTogether(asked, "machine", (signal) => source().metrics(asked, signal));
  const figures = useMemo(() => machineFigures(value ?? []), [value]);
  const withFigures = useMemo(
    () => (value ?? []).filter(({ metrics }) => metrics.some(({ key }) => key.startsWith("sys/"))),
    [value],
  );
  const ids = useMemo(() => withFigures.map(({ id }) => id), [withFigures.map(({ id }) => id).join("\n")]);
  if (!value) return <p class="loading">{problem ?? "reading the machine’s figures …"}</p>;
  if (figures.length === 0) {
    return (
      <Empty title="No figures of the machine">
        <p>
          A run logs them every five seconds (<code>system_every</code>); these ended before, or came from another
          logger.
        </p>
      </Empty>
    );
  }
  const groups = [...new Set(figures.map(({ group }) => group))];
  return (
    <div class="machine">
      <div class="toolbar">
        <Segmented
          label="x axis"
          options={["relative time", "wall time", "step"]}
          names={{ "relative time": "time since the start", "wall time": "time of day", step: "step" }}
          value={axisParam.value}
          onChange={(axis) => setAxis(view, axis)}
        />
        <Zoomed view={view} />
        {runs.length > MOST_RUNS && (
          <span class="faint">
            the first {MOST_RUNS} of {runs.length} runs
          </span>
        )}
      </div>
      <Latest runs={withFigures} figures={figures} />
      {withFigures.map((run) => (
        <Ranks key={run.id} run={run} named={withFigures.length > 1} />
      ))}
      {groups.map((group) => (
        <section key={group} aria-label={group}>
          <PageTitle title={group} />
          <div class="machine-grid">
            {figures
              .filter((figure) => figure.group === group)
              .map(({ key, title }) => (
                <ChartCard key={key} runs={ids} keys={[key]} title={title} view={view} />
              ))}
          </div>
        </section>
      ))}
    </div>
  );
}

/** A row for each rank of a training by several processes. */
function Ranks({ run, named }: { run: RunMetrics; named: boolean }) {
  const rows = rankRows(run.metrics);
  if (rows.length === 0) return null;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard
    <section class="beside" tabIndex={0} aria-label={named ? `Ranks of ${run.id}` : "Ranks"}>
      <table>
        <thead>
          <tr>
            <th scope="col">{named ? <RunLabel id={run.id} /> : "ranks"}</th>
            <th scope="col">its own speed</th>
            <th scope="col">busy</th>
            <th scope="col">memory</th>
            <th scope="col">GPU</th>
            <th scope="col">against the others</th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ rank, speed, busy, memory, gpu, slow }) => (
            <tr key={rank}>
              <th scope="row">rank {rank}</th>
              <td>{speed}</td>
              <td>{busy}</td>
              <td>{memory}</td>
              <td>{gpu}</td>
              <td>{slow ? <strong>{slow}</strong> : "as fast"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Latest({ runs, figures }: { runs: readonly RunMetrics[]; figures: readonly MachineFigure[] }) {
  const columns = latestColumns(figures).filter(({ text }) => runs.some(({ metrics }) => text(metrics) !== "–"));
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard
    <section class="beside" tabIndex={0} aria-label="The latest figures">
      <table>
        <thead>
          <tr>
            <th scope="col">latest</th>
            {columns.map(({ title }, index) => (
              <th key={`${title} ${index}`} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {runs.map(({ id, metrics }) => (
            <tr key={id}>
              <th scope="row">
                <a href={link(`/run/${encodeURIComponent(id)}/machine`)}>
                  <RunLabel id={id} />
                </a>
              </th>
              {columns.map(({ title, text }, index) => (
                <td key={`${title} ${index}`}>{text(metrics)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
