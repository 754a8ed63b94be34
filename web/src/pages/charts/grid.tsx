import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { flag, pageParam, text } from "../../address";
import { feed } from "../../charts/board-feed";
import { differingSettings } from "../../charts/spread";
import { groupsOf } from "../../charts/styling";
import { boardView } from "../../charts/view";
import { known as rows } from "../../data/state";
import type { Axis } from "../../data/types";
import { Empty } from "../../ui/empty";
import { chartSections, mainMetric } from "./chart-list";
import { useChartCommands } from "./commands";
import { FullChart } from "./full";
import { LatestSamples } from "./latest-samples";
import { useMetrics } from "./metrics";
import { preferences, restorePreferences } from "./preferences";
import { Section } from "./section";
import { awaitChart } from "./selection";
import { ChartControls, ChartFilters } from "./toolbar";
import "./grid.css";

const LEAST_WIDTH = 310; // pixels of a column
const MOST_COLUMNS = 6;
const filterWords = pageParam("charts", text, "");
const wholeScreen = pageParam("chart", text, "");
const withLegend = pageParam("legend", flag, false);

/** What a run is part of, to group by as by a setting. */
function fieldsOf(id: string): Record<string, unknown> {
  const { recipe, experiment, group } = rows.peek().get(id) ?? {};
  return { recipe, experiment, group };
}

export interface ChartGridProps {
  /** Ids of the runs, overlaid in each chart. */
  runs: readonly string[];
  /** Below them, what the runs wrote last. */
  samples?: boolean;
  /** Where the controls of the x axis, smoothing and log scale go, and null at the end; by default above the charts. */
  onControls?: (controls: ComponentChildren) => void;
}

/** A chart for each metric of some runs, in sections: to pin, move, resize, hide, filter and open. */
export function ChartGrid({ runs, onControls, samples = false }: ChartGridProps) {
  const metrics = useMetrics(runs);
  const [showHidden, setShowHidden] = useState(false);
  const [settled, setSettled] = useState(false); // the charts in sight have their series: there is time for the rest
  const [columns, setColumns] = useState(3);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => restorePreferences(), []);

  const hasMetrics = metrics !== null;
  useEffect(() => {
    if (hasMetrics)
      void feed()
        .settled()
        .then(() => setSettled(true));
  }, [hasMetrics]);

  const known = metrics === null || typeof metrics === "string" ? [] : metrics;
  const settings = useMemo(
    () => new Map(known.map((run) => [run.id, { ...fieldsOf(run.id), ...run.settings }])),
    [metrics],
  );
  const words = filterWords.value;
  const sections = chartSections(known, preferences.value, { words, showHidden });
  const main = mainMetric([...new Set(known.flatMap((run) => run.metrics.map(({ key }) => key)))]);
  const entries = sections.flatMap(({ charts, constants, hidden }) => [...charts, ...constants, ...hidden]);
  const opened = entries.find(({ key }) => key === wholeScreen.value);
  const isOpened = opened !== undefined;
  useLayoutEffect(() => {
    const element = root.current; // none while a chart fills the page: another one afterwards
    if (!element) return;
    const observer = new ResizeObserver(() => {
      const amount = Math.floor((element.clientWidth + 12) / (LEAST_WIDTH + 12));
      setColumns(Math.min(MOST_COLUMNS, Math.max(1, amount)));
    });
    observer.observe(element);
    return () => observer.disconnect();
  }, [isOpened]);
  useLayoutEffect(() => {
    if (!isOpened) awaitChart(null); // after the charts: what none of them is will not come
  });
  const axes: Axis[] = known.length ? [...new Set(known.flatMap((run) => run.axes))] : ["step"];
  const axisNames = axes.join();
  const controls = useMemo(() => <ChartControls axes={axes} />, [axisNames]);
  useEffect(() => onControls?.(controls), [controls, onControls]);
  // At once: other effects of what is gone end after the next frame, when the page that follows may have put its own there.
  useLayoutEffect(() => () => onControls?.(null), [onControls]);

  const turn = (by: number) => {
    const shown = sections.flatMap(({ charts }) => charts);
    const at = shown.findIndex(({ key }) => key === wholeScreen.value);
    const next = shown[(at + by + shown.length) % shown.length];
    if (next) wholeScreen.replace(next.key);
  };
  useChartCommands({
    sections,
    axes,
    main,
    columns,
    openChart: (key) => {
      wholeScreen.value = key;
    },
    toggleShowHidden: () => setShowHidden(!showHidden),
    clearFilter: () => filterWords.replace(""),
  });

  if (opened) {
    return (
      <FullChart
        entry={opened}
        runs={runs}
        settings={settings}
        onClose={() => {
          wholeScreen.value = "";
        }}
        onTurn={turn}
      />
    );
  }
  return (
    <div class="charts" ref={root}>
      {!onControls && controls}
      <ChartFilters
        words={words}
        onWords={(typed) => filterWords.replace(typed)}
        settings={differingSettings(runs, settings)}
        groups={groupsOf({ runs, settings }, boardView)}
        rows={known.flatMap((run) => run.metrics.filter(({ key }) => key === main).map(({ rows }) => rows))}
        legend={withLegend.value}
        onLegend={(on) => {
          withLegend.value = on;
        }}
      />
      {typeof metrics === "string" && <Empty title={metrics} />}
      {metrics !== null && typeof metrics !== "string" && !entries.length && (
        <Empty title={words ? `no chart has “${words}” in its name` : "no metrics yet"} />
      )}
      {sections.map((section) => (
        <Section
          key={section.name}
          section={section}
          runs={runs}
          settings={settings}
          columns={columns}
          main={main}
          legend={withLegend.value}
          onFullScreen={(key) => {
            wholeScreen.value = key;
          }}
          onShowHidden={() => setShowHidden(true)}
        />
      ))}
      {samples && settled && !words && <LatestSamples runs={runs} columns={columns} />}
    </div>
  );
}
