import { useEffect, useRef } from "preact/hooks";
import { number } from "../words";
import { cursor, highlighted } from "./cursor";
import type { ChartModel } from "./model";
import { readingsAt } from "./readings";
import { namedLines } from "./styling";
import { lineSummaries } from "./summary";
import { useThrottled } from "./throttled";
import "./legend.css";

const EVERY = 500; // milliseconds, while rows arrive

/** The lines of a chart with their values: at the cursor, else the last ones. `full`: with best values, as a table. */
export function Legend({ model, full = false }: { model: ChartModel; full?: boolean }) {
  const lines = useThrottled(model.lines, EVERY);
  const values = useRef<HTMLUListElement>(null);
  useEffect(
    () =>
      cursor.onMove(() => {
        const readings =
          cursor.x === null || cursor.axis !== model.axis ? null : readingsAt(model.lines.peek(), cursor.x, 0);
        const list = values.current;
        if (!list) return;
        for (const [at, styled] of namedLines(model.lines.peek()).entries()) {
          const cell = list.children[at]?.querySelector<HTMLElement>(".legend-value");
          if (!cell) continue;
          const reading = readings?.find((one) => one.styled === styled);
          cell.textContent = readings ? number(reading?.value ?? null) : (cell.dataset.last ?? "");
        }
      }),
    [model],
  );
  const named = namedLines(lines);
  if (!named.length) return null;
  return (
    <ul class={full ? "legend full" : "legend"} ref={values}>
      {lineSummaries(named, model.axis).map(({ styled, last, best, bestAt }) => {
        const { trace, colour, dashed, label } = styled;
        return (
          <li
            key={`${trace.run} ${trace.key} ${trace.superseded}`}
            style={{ "--run": colour }}
            onPointerEnter={() => {
              highlighted.value = trace.run;
            }}
            onPointerLeave={() => {
              highlighted.value = null;
            }}
          >
            <i class={dashed || trace.superseded ? "legend-line dashed" : "legend-line"} aria-hidden="true" />
            <span class="clip legend-label">{label}</span>
            <b class="legend-value" data-last={last}>
              {last}
            </b>
            {full && trace.best && (
              <small>
                best {best} at {bestAt}
              </small>
            )}
          </li>
        );
      })}
    </ul>
  );
}
