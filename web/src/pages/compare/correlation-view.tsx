import { useMemo } from "preact/hooks";
import { number, plural } from "../../words";
import { PageTitle } from "../page-title";
import { type Comparison, resultOf, type Taken } from "./comparison";
import { type Correlation, correlations, FEWEST_RUNS } from "./correlation";
import { chosenResult, ResultSelect } from "./metric-select";
import "./correlations.css";

const MOST_ROWS = 40;

/** How settings go together with a result, by rank, with how sure that is. */
export function CorrelationTable({ comparison, taken }: { comparison: Comparison; taken: Taken }) {
  const { runs, differing, metrics } = comparison;
  const metric = chosenResult(metrics);
  const results = useMemo(
    () => runs.map((run) => (metric ? resultOf(run, metric.key, taken) : null)),
    [runs, metric?.key, taken],
  );
  const rows = useMemo(
    () => correlations(differing, (run, name) => runs[run]?.settings[name], results),
    [runs, results, differing],
  );
  if (!metric || rows.length === 0) return null;
  const scored = results.filter((value) => value !== null && Number.isFinite(value)).length;
  const known = rows.filter(({ strength }) => strength !== null);
  return (
    <section aria-label="Correlation of settings with a result">
      <PageTitle
        title="Settings and the result"
        note={`Spearman’s rank correlation with ${metric.key}, ${plural(scored, "run")}`}
      >
        <ResultSelect metrics={metrics} />
      </PageTitle>
      {known.length === 0 ? (
        <p class="dim">
          {plural(scored, "run")} with this result tell nothing of what goes together: it takes at least {FEWEST_RUNS},
          and twenty or more to be sure of it.
        </p>
      ) : (
        <>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard */}
          <section class="correlation-table" tabIndex={0} aria-label="Correlation of each setting">
            <table class="correlations">
              <thead>
                <tr>
                  <th scope="col">setting</th>
                  <th scope="col" class="num">
                    correlation
                  </th>
                  <th scope="col" class="centre">
                    <span class="unseen">as a bar from</span> −1 <span class="correlation-gap" /> 0{" "}
                    <span class="correlation-gap" /> 1
                  </th>
                  <th scope="col">95 % interval</th>
                  <th scope="col" class="num">
                    runs
                  </th>
                  <th scope="col">
                    <span class="unseen">what may be said</span>
                  </th>
                </tr>
              </thead>
              <tbody>
                {known.slice(0, MOST_ROWS).map((row) => (
                  <Row key={row.name} row={row} goal={metric.goal} />
                ))}
              </tbody>
            </table>
          </section>
          <p class="faint">
            What goes together need not be a cause; settings that were changed together cannot be told apart.
            {known.length > 1 &&
              ` Of ${known.length} settings, about ${number(known.length * 0.05, 1)} would look likely by chance.`}
            {rows.length > known.length &&
              ` Left out: ${plural(rows.length - known.length, "setting")} with fewer than ${FEWEST_RUNS} runs.`}
          </p>
        </>
      )}
    </section>
  );
}

function Row({ row, goal }: { row: Correlation; goal: "min" | "max" | null }) {
  const strength = row.strength ?? 0;
  const helps = row.signed && goal !== null && strength !== 0 ? strength < 0 === (goal === "min") : null;
  const xOf = (value: number) => 60 + 58 * value;
  return (
    <tr class={row.verdict === "likely" ? "" : "unsure"}>
      <th scope="row">{row.name}</th>
      <td class="num">
        {row.signed
          ? `${strength > 0 ? "+" : strength < 0 ? "−" : ""}${Math.abs(strength).toFixed(2)}`
          : `ε² ${strength.toFixed(2)}`}
      </td>
      <td class="centre">
        <svg width={120} height={16} viewBox="0 0 120 16" aria-hidden="true">
          <line x1={60} x2={60} y1={0} y2={16} stroke="var(--line)" />
          {row.interval && (
            <line
              x1={xOf(row.interval[0])}
              x2={xOf(row.interval[1])}
              y1={8}
              y2={8}
              stroke="var(--ghost)"
              stroke-width={2}
            />
          )}
          <rect
            x={Math.min(60, xOf(strength))}
            width={Math.abs(xOf(strength) - 60)}
            y={5}
            height={6}
            rx={2}
            fill={helps === null ? "var(--accent)" : helps ? "var(--good)" : "var(--bad)"}
          />
        </svg>
      </td>
      <td class="dim">
        {row.interval ? `${row.interval[0].toFixed(2)} … ${row.interval[1].toFixed(2)}` : `${row.values} groups`}
      </td>
      <td class="num">{row.runs}</td>
      <td class="dim">
        {row.verdict === "likely"
          ? helps === null
            ? "goes together"
            : `more of it: ${helps ? "better" : "worse"}`
          : row.verdict}
      </td>
    </tr>
  );
}
