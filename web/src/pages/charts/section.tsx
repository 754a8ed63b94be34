import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { ChartCard } from "../../charts/card";
import { GripIcon } from "../../charts/icons";
import type { ChartSubject } from "../../charts/styling";
import { Button } from "../../ui/button";
import { count, plural } from "../../words";
import type { ChartEntry, ChartSection } from "./chart-list";
import { dragHandle, resizeHandle } from "./handles";
import { preferences, sizeOf, toggleConstants, toggleFolded, toggleHidden, togglePinned } from "./preferences";
import { awaitChart, surfaces, welcomeChart } from "./selection";

const AT_ONCE = 60; // charts: a model may have a metric for each of its thousand tensors

export interface SectionProps {
  section: ChartSection;
  runs: readonly string[];
  settings: ChartSubject["settings"];
  /** Columns of the grid. */
  columns: number;
  /** The main metric, whose chart is larger. */
  main: string | null;
  legend: boolean;
  onFullScreen(key: string): void;
  onShowHidden(): void;
}

/** Charts of one prefix below a heading that folds them away. */
export function Section({ section, ...rest }: SectionProps) {
  const { name, charts, constants, hidden } = section;
  const folded = preferences.value.folded.includes(name);
  const [amount, setAmount] = useState(AT_ONCE);
  const title = name === "results" && rest.main && charts.some(({ key }) => key === rest.main) ? rest.main : name;
  return (
    <section class="chart-section" aria-label={`${title} charts`}>
      <div class="chart-heading">
        <h2>
          <button type="button" aria-expanded={!folded} onClick={() => toggleFolded(name)}>
            {title}
          </button>
        </h2>
        <span>
          {plural(charts.length, "chart")}
          {constants.length > 0 && (
            <>
              {" · "}
              <button type="button" title={constantsText(constants)} onClick={toggleConstants}>
                {constants.length} constant hidden
              </button>
            </>
          )}
          {hidden.length > 0 && (
            <>
              {" · "}
              <button type="button" title={hidden.map(({ key }) => key).join(", ")} onClick={rest.onShowHidden}>
                {hidden.length} hidden
              </button>
            </>
          )}
        </span>
      </div>
      {!folded && charts.length > 0 && (
        <div class="chart-grid" style={{ "--columns": String(rest.columns) }}>
          {charts.slice(0, amount).map((entry) => (
            <Cell key={entry.key} entry={entry} members={charts.map(({ key }) => key)} {...rest} />
          ))}
        </div>
      )}
      {!folded && charts.length > amount && (
        <Button onClick={() => setAmount(amount + AT_ONCE)}>
          {count(Math.min(AT_ONCE, charts.length - amount))} more of {count(charts.length)}
        </Button>
      )}
    </section>
  );
}

function constantsText(constants: readonly ChartEntry[]): string {
  return constants.map(({ key, constant }) => `${key} ${constant}`).join(", ");
}

interface CellProps extends Omit<SectionProps, "section"> {
  entry: ChartEntry;
  /** The charts of its section, in order. */
  members: readonly string[];
}

/** A chart in its place of the grid: it can be moved, resized, pinned, hidden. */
function Cell({ entry, members, runs, settings, columns, main, legend, onFullScreen }: CellProps) {
  const { key } = entry;
  const cell = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const element = cell.current;
    if (!element) return;
    welcomeChart(key, element);
    return () => {
      if (element.contains(document.activeElement)) awaitChart(key); // it goes to another section, as when it is pinned
    };
  }, []);
  const size = sizeOf(key, key === main, columns);
  const across = Math.min(size.columns, columns);
  const rows = size.rows;
  const label = `${key}${entry.constant === null ? "" : `, constant ${entry.constant}`}`;
  return (
    <div
      ref={cell}
      class={entry.hidden || entry.constant !== null ? "chart-cell pale" : "chart-cell"}
      role="group"
      aria-label={label}
      data-key={key}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: keys act on the chart that has the focus
      tabIndex={0}
      style={{ gridColumn: `span ${across}`, gridRow: `span ${rows}` }}
    >
      <ChartCard
        runs={runs}
        keys={entry.keys}
        heldOut={new Set(entry.heldOut)}
        settings={settings}
        large={across > 1}
        legend={legend}
        pinned={entry.pinned}
        onPin={() => togglePinned(key)}
        onFullScreen={() => onFullScreen(key)}
        onReady={(surface) => {
          if (surface) surfaces.set(key, surface);
          else surfaces.delete(key);
        }}
        grip={
          <span class="chart-grip" title="drag to move; ( and ) do it too" {...dragHandle(key, members)}>
            <GripIcon />
          </span>
        }
        items={[
          [
            { text: entry.pinned ? "not pinned any more" : "pin", hint: "p", run: () => togglePinned(key) },
            { text: entry.hidden ? "bring back" : "hide", hint: "h", run: () => toggleHidden(key) },
          ],
        ]}
      />
      <span
        class="chart-resize"
        title="drag to resize; Shift and arrows do it too"
        {...resizeHandle(key, { columns: across, rows })}
      />
    </div>
  );
}
