import type { ChartModel } from "./model";
import type { StyledTrace } from "./paint";
import { lineSummaries, valueTable } from "./summary";
import { useThrottled } from "./throttled";
import "./chart-table.css";

const COLUMNS = 9;
const MOST_SEEN = 100; // lines
const MOST_HEARD = 24;
const EVERY = 2000; // milliseconds, while rows arrive

/** The chart as a table: the last and best value of each line. `seen`: not for ears alone; then values along the axis too. */
export function ChartTable({ model, title, seen }: { model: ChartModel; title: string; seen: boolean }) {
  const lines = useThrottled(model.lines, EVERY).filter(({ trace }) => trace.borrowed < trace.length);
  if (!lines.length) return null;
  return (
    <div class={seen ? "chart-table" : "unseen"}>
      <table>
        <caption class="unseen">
          {title} by {model.axis}
          {lines.length > MOST_HEARD && !seen ? `: the first ${MOST_HEARD} of ${lines.length} lines` : ""}
        </caption>
        {seen ? (
          <SeenRows model={model} lines={lines.slice(0, MOST_SEEN)} />
        ) : (
          <HeardRows model={model} lines={lines} />
        )}
      </table>
    </div>
  );
}

interface RowsProps {
  model: ChartModel;
  lines: readonly StyledTrace[];
}

const FIGURES = ["last", "at", "best", "at"];

function HeardRows({ model, lines }: RowsProps) {
  return (
    <>
      <Head columns={[]} />
      <tbody>
        {lineSummaries(lines.slice(0, MOST_HEARD), model.axis).map(({ styled, last, lastAt, best, bestAt }) => (
          <Row key={nameOf(styled)} label={styled.label} cells={[last, lastAt, best, bestAt]} />
        ))}
      </tbody>
    </>
  );
}

function SeenRows({ model, lines }: RowsProps) {
  const content = useThrottled(model.content, EVERY);
  const table = content ? valueTable(lines, model.axis, content.x, COLUMNS) : { columns: [], rows: [] };
  return (
    <>
      <Head columns={table.columns.map((x) => `${model.axis} ${x}`)} />
      <tbody>
        {lineSummaries(lines, model.axis).map(({ styled, last, lastAt, best, bestAt }, at) => (
          <Row
            key={nameOf(styled)}
            label={styled.label}
            cells={[last, lastAt, best, bestAt, ...(table.rows[at]?.values ?? [])]}
          />
        ))}
      </tbody>
    </>
  );
}

function nameOf({ trace }: StyledTrace): string {
  return `${trace.run} ${trace.key} ${trace.superseded} ${trace.inherited}`;
}

function Head({ columns }: { columns: readonly string[] }) {
  return (
    <thead>
      <tr>
        <th scope="col">run</th>
        {[...FIGURES, ...columns].map((text, at) => (
          <th key={at} scope="col">
            {text}
          </th>
        ))}
      </tr>
    </thead>
  );
}

function Row({ label, cells }: { label: string; cells: readonly string[] }) {
  return (
    <tr>
      <th scope="row">{label}</th>
      {cells.map((text, at) => (
        <td key={at}>{text}</td>
      ))}
    </tr>
  );
}
