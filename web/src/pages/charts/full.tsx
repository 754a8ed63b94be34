import { useEffect, useLayoutEffect, useState } from "preact/hooks";
import { Chart } from "../../charts/chart";
import { ChartTable } from "../../charts/chart-table";
import { exportItems } from "../../charts/export";
import { MoreIcon } from "../../charts/icons";
import { Legend } from "../../charts/legend";
import { Menu } from "../../charts/menu";
import type { ChartSubject } from "../../charts/styling";
import type { ChartSurface } from "../../charts/surface";
import { useCommands } from "../../keys";
import { problem } from "../../ui/toast";
import type { ChartEntry } from "./chart-list";
import { awaitChart } from "./selection";
import "./full.css";

export interface FullChartProps {
  entry: ChartEntry;
  runs: readonly string[];
  settings: ChartSubject["settings"];
  onClose(): void;
  /** The chart before (-1) or after (1). */
  onTurn(by: number): void;
}

/** One metric on the whole page, with its legend; the wheel zooms, arrows move the cursor. */
export function FullChart({ entry, runs, settings, onClose, onTurn }: FullChartProps) {
  const [surface, setSurface] = useState<ChartSurface | null>(null);
  const [table, setTable] = useState(false);
  const section = "one metric";
  useCommands([
    {
      keys: ["ArrowLeft"],
      shown: "←",
      section,
      text: "the cursor to the left, with exact values",
      keyOnly: true,
      run: () => surface?.moveCursor(-1),
    },
    {
      keys: ["ArrowRight"],
      shown: "→",
      section,
      text: "the cursor to the right",
      keyOnly: true,
      run: () => surface?.moveCursor(1),
    },
    {
      keys: ["Home"],
      section,
      text: "the cursor to the beginning",
      keyOnly: true,
      run: () => surface?.moveCursor("first"),
    },
    { keys: ["End"], section, text: "the cursor to the end", keyOnly: true, run: () => surface?.moveCursor("last") },
    { keys: ["+", "=", "ArrowUp"], shown: "+", section, text: "closer", run: () => surface?.zoomBy(0.5, 0.5) },
    { keys: ["-", "ArrowDown"], shown: "-", section, text: "farther", run: () => surface?.zoomBy(2, 0.5) },
    { keys: ["[", "<"], shown: "[", section, text: "the metric before", run: () => onTurn(-1) },
    { keys: ["]", ">"], shown: "]", section, text: "the next metric", run: () => onTurn(1) },
    { keys: ["Escape", "q", "Backspace", "Enter"], shown: "Esc", section, text: "back to all charts", run: onClose },
  ]);
  useEffect(() => {
    document.querySelector<HTMLElement>(".full-chart")?.focus();
  }, []);
  useLayoutEffect(() => awaitChart(entry.key), [entry.key]);
  return (
    <section class="full-chart" tabIndex={-1} aria-label={`${entry.key} on the whole screen`}>
      <header>
        <h2 class="clip">{entry.key}</h2>
        {entry.keys.length > 1 && <span class="faint">training — · held out ┄</span>}
        <span class="grow" />
        <button type="button" class="icon-button" onClick={() => onTurn(-1)} aria-label="the metric before" title="[">
          ‹
        </button>
        <button type="button" class="icon-button" onClick={() => onTurn(1)} aria-label="the next metric" title="]">
          ›
        </button>
        {surface && (
          <Menu
            label="more"
            groups={[
              [{ text: "table", checked: table, run: () => setTable(!table) }],
              exportItems(surface, entry.key, problem),
            ]}
          >
            <MoreIcon />
          </Menu>
        )}
        <button type="button" class="icon-button" onClick={onClose} aria-label="back to all charts" title="Esc">
          ✕
        </button>
      </header>
      <div class="full-chart-body">
        <div class="full-chart-plot">
          <Chart
            key={entry.key}
            runs={runs}
            keys={entry.keys}
            heldOut={new Set(entry.heldOut)}
            settings={settings}
            wheelZooms
            onReady={setSurface}
          />
          {surface && <ChartTable model={surface.model} title={entry.key} seen={table} />}
        </div>
        <aside>{surface && <Legend model={surface.model} full />}</aside>
      </div>
    </section>
  );
}
