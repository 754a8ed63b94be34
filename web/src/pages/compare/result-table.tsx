import { link, pageParam, text } from "../../address";
import { known, nameOf } from "../../data/state";
import { RunLabel } from "../../ui/run-label";
import { count, duration, number } from "../../words";
import { PageTitle } from "../page-title";
import { bestRuns, type Comparison, resultOf, stepOf, type Taken } from "./comparison";
import "../../ui/beside.css";
import "./results.css";

/** The metric by which runs are ordered; a minus before it: the greatest first. */
const orderParam = pageParam("order", text, "");
const MOST_METRICS = 12;
const MOST_ROWS = 100;

/** A row a run, a column a metric; the best of each column marked. */
export function ResultTable({ comparison: { runs, metrics }, taken }: { comparison: Comparison; taken: Taken }) {
  const shown = metrics.slice(0, MOST_METRICS);
  const typed = orderParam.value;
  const sort = typed ? { key: typed.replace(/^-/, ""), descending: typed.startsWith("-") } : null;
  if (shown.length === 0) return null;
  const columns = shown.map((metric) => {
    const values = runs.map((run) => resultOf(run, metric.key, taken));
    return { metric, values, best: bestRuns(values, metric.goal) };
  });
  const sorted = columns.find(({ metric }) => metric.key === sort?.key);
  const order = [...runs.entries()];
  if (sorted && sort) {
    const last = sort.descending ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
    const sortKey = (index: number) => {
      const value = sorted.values[index] ?? last;
      return Number.isNaN(value) ? last : value;
    };
    order.sort(([a], [b]) => (sortKey(a) - sortKey(b)) * (sort.descending ? -1 : 1) || a - b);
  }
  const sortBy = (key: string, goal: string | null) => {
    const descending = goal === "max";
    const isTurned = sort?.key === key && sort.descending !== descending;
    const turned = sort?.key === key ? !descending : descending;
    orderParam.replace(isTurned ? "" : `${turned ? "-" : ""}${key}`);
  };
  return (
    <section aria-label="Results">
      <PageTitle title="Results" note={`${taken} values; ◆ the best of a column`} />
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard */}
      <section class="beside results" tabIndex={0} aria-label="Results of each run">
        <table>
          <thead>
            <tr>
              <th scope="col">run</th>
              {columns.map(({ metric }) => {
                const direction = sort?.key === metric.key ? (sort.descending ? "descending" : "ascending") : "none";
                return (
                  <th key={metric.key} class="num" scope="col" aria-sort={direction}>
                    <button type="button" onClick={() => sortBy(metric.key, metric.goal)}>
                      {metric.key}
                      <span aria-hidden="true">
                        {direction === "none" ? "" : direction === "ascending" ? " ▴" : " ▾"}
                      </span>
                    </button>
                  </th>
                );
              })}
              <th class="num" scope="col">
                steps
              </th>
              <th class="num" scope="col">
                time
              </th>
            </tr>
          </thead>
          <tbody>
            {order.slice(0, MOST_ROWS).map(([index, run]) => {
              const row = known.value.get(run.id);
              return (
                <tr key={run.id}>
                  <th scope="row" title={nameOf(run.id)}>
                    <a href={link(`/run/${encodeURIComponent(run.id)}`)}>
                      <RunLabel id={run.id} />
                    </a>
                  </th>
                  {columns.map(({ metric, values, best }) => {
                    const step = stepOf(run, metric.key, taken);
                    const value = values[index] ?? null;
                    return (
                      <td
                        key={metric.key}
                        class={best.has(index) ? "num best" : "num"}
                        title={step === null ? undefined : `step ${count(step)}`}
                      >
                        {best.has(index) && (
                          <>
                            <span aria-hidden="true">◆ </span>
                            <span class="unseen">best: </span>
                          </>
                        )}
                        {number(value === null ? null : asFigure(value))}
                      </td>
                    );
                  })}
                  <td class="num">{count(row?.step ?? null)}</td>
                  <td class="num">{duration(row?.seconds ?? null)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </section>
      {metrics.length > MOST_METRICS && (
        <p class="faint">
          The first {MOST_METRICS} of {metrics.length} metrics; the page of runs shows any of them as a column.
        </p>
      )}
    </section>
  );
}

function asFigure(value: number): number | "nan" | "inf" | "-inf" {
  if (Number.isNaN(value)) return "nan";
  return Number.isFinite(value) ? value : value > 0 ? "inf" : "-inf";
}
