import type { ChartModel } from "./model";
import { lineSummaries, valueTable } from "./summary";
import { useThrottled } from "./throttled";
import "./chart-table.css";

const PLACES = 9;
const PLACES_HEARD = 3;
const MOST_LINES = 60;
const EVERY = 2000; // milliseconds, while rows arrive

/** The chart as a table: the last and best value of each line, and values along the axis. `seen`: not for ears alone. */
export function ChartTable({ model, title, seen }: { model: ChartModel; title: string; seen: boolean }) {
  const content = useThrottled(model.content, EVERY);
  if (!content) return null;
  const styled = model.styled.slice(0, MOST_LINES);
  const summaries = lineSummaries(styled, model.axis);
  const table = valueTable(styled, model.axis, content.x, seen ? PLACES : PLACES_HEARD);
  return (
    <div class={seen ? "chart-table" : "unseen"}>
      <table>
        <caption class="unseen">
          {title} by {model.axis}
        </caption>
        <thead>
          <tr>
            <th scope="col">run</th>
            <th scope="col">last</th>
            <th scope="col">at</th>
            <th scope="col">best</th>
            <th scope="col">at</th>
            {table.places.map((place, at) => (
              <th key={at} scope="col">
                {model.axis} {place}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {summaries.map(({ styled: line, last, lastAt, best, bestAt }, at) => (
            <tr key={`${line.trace.run} ${line.trace.key} ${line.trace.superseded}`}>
              <th scope="row">{line.label}</th>
              <td>{last}</td>
              <td>{lastAt}</td>
              <td>{best}</td>
              <td>{bestAt}</td>
              {table.rows[at]?.values.map((value, place) => (
                <td key={place}>{value}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
