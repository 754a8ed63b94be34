import type { RunGroup, Spread } from "../../charts/spread";
import { ALL_BUT_SEED } from "../../charts/spread";
import { groupColour, groupName } from "../../charts/styling";
import { AXES, alphaOf, DEFAULT_SMOOTHING, setAxis, boardView as view } from "../../charts/view";
import { Zoomed } from "../../charts/zoomed";
import { leastRows } from "../../data/report/smoothing";
import { nameOf } from "../../data/state";
import type { Axis } from "../../data/types";
import { Segmented, Toggle } from "../../ui/segmented";
import { Slider } from "../../ui/slider";
import { count } from "../../words";
import "./toolbar.css";

const SHORT: Partial<Record<Axis, string>> = { "wall time": "wall", "relative time": "time" };
const MOST_GROUPS = 12;
const NO_MEAN = "";

/** For the header: axis, smoothing, log scale. */
export function ChartControls({ axes }: { axes: readonly Axis[] }) {
  const smooth = view.smooth.value;
  return (
    <div class="chart-controls">
      <span class="chart-control">
        <span aria-hidden="true">x</span>
        <Segmented
          label="x axis"
          options={AXES.filter((axis) => axes.includes(axis) || axis === view.axis.value)}
          names={SHORT}
          value={view.axis.value}
          onChange={(axis) => setAxis(view, axis)}
        />
      </span>
      <Slider
        label="smooth"
        min={0}
        max={1}
        step={0.01}
        value={sliderOf(smooth)}
        shown={smooth === 0 ? "off" : smooth.toFixed(smooth > 0.98 ? 3 : 2)}
        onInput={(at) => setSmoothing(smoothingOf(at))}
      />
      <Toggle
        label="log"
        on={view.logY.value}
        onChange={(on) => {
          view.logY.value = on;
        }}
      />
    </div>
  );
}

/** The slider is finer where smoothing is heavy: halfway is 0.75, nine tenths 0.99. */
export function smoothingOf(at: number): number {
  const smooth = 1 - (1 - at) ** 2;
  return Math.min(0.999, Math.round(smooth * 1000) / 1000);
}

export function sliderOf(smooth: number): number {
  return 1 - Math.sqrt(1 - smooth);
}

export function setSmoothing(smooth: number): void {
  view.smooth.value = smooth;
}

export interface ChartFiltersProps {
  words: string;
  onWords(words: string): void;
  /** Settings in which the runs differ. */
  settings: readonly string[];
  /** Of the runs, where the mean of each is drawn. */
  groups: readonly RunGroup[];
  /** Of the main metric of each run. */
  rows: readonly number[];
  legend: boolean;
  onLegend(on: boolean): void;
}

/** Below the header: names to look for, groups, and what else charts show. */
export function ChartFilters({ words, onWords, settings, groups, rows, legend, onLegend }: ChartFiltersProps) {
  const groupBy = groups.length ? view.groupBy.value : NO_MEAN;
  return (
    <search class="chart-filters">
      <input
        id="chart-filter"
        class="search"
        type="search"
        placeholder="filter charts  /"
        aria-label="filter charts by name"
        value={words}
        onInput={(event) => onWords(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          onWords("");
          event.currentTarget.blur();
          event.stopPropagation();
        }}
      />
      <label class="chart-control">
        mean over
        <select
          class="select"
          value={groupBy}
          onChange={(event) => {
            view.groupBy.value = event.currentTarget.value;
          }}
        >
          <option value={NO_MEAN}>nothing: each run a line</option>
          <option value={ALL_BUT_SEED}>seeds: runs equal in all else</option>
          {settings.map((setting) => (
            <option key={setting} value={setting}>
              runs with the same {setting}
            </option>
          ))}
          {groupBy && groupBy !== ALL_BUT_SEED && !settings.includes(groupBy) && (
            <option value={groupBy}>runs with the same {groupBy}</option>
          )}
        </select>
      </label>
      {groupBy && (
        <Segmented<Spread>
          label="band"
          options={["std", "range"]}
          names={{ std: "± std", range: "min – max" }}
          value={view.spread.value}
          onChange={(spread) => {
            view.spread.value = spread;
          }}
        />
      )}
      <span class="grow" />
      <Zoomed view={view} />
      <Toggle label="log x" on={view.logX.value} onChange={(on) => setFlag("logX", on)} />
      <Toggle label="clip" on={view.clip.value} onChange={(on) => setFlag("clip", on)} />
      <Toggle label="resumes" on={view.superseded.value} onChange={(on) => setFlag("superseded", on)} />
      <Toggle label="legend" on={legend} onChange={onLegend} />
      <SmoothingNote rows={rows} />
      {groups.length > 0 && (
        <ul class="chart-groups" aria-label="groups of runs">
          {groups.slice(0, MOST_GROUPS).map((group) => (
            <li key={group.label} style={{ "--run": groupColour(group) }} title={group.runs.map(nameOf).join(", ")}>
              <i class="legend-line" aria-hidden="true" />
              <span class="clip">{groupName(group)}</span>
            </li>
          ))}
          {groups.length > MOST_GROUPS && <li class="faint">and {groups.length - MOST_GROUPS} more</li>}
        </ul>
      )}
    </search>
  );
}

/** Why the slider does nothing: a line of few rows stays as it is, since its mean would only lag behind them. */
function SmoothingNote({ rows }: { rows: readonly number[] }) {
  const smooth = view.smooth.value;
  const least = leastRows(alphaOf(smooth));
  const short = rows.filter((of) => of < least).length;
  if (smooth <= DEFAULT_SMOOTHING || short === 0) return null;
  return (
    <p class="faint">
      A line is smoothed by {smooth} from {count(least)} rows on;{" "}
      {short === rows.length ? "these have" : `${short} of these have`} fewer and are drawn as logged.
    </p>
  );
}

function setFlag(name: "logX" | "clip" | "superseded", on: boolean): void {
  view[name].value = on;
}
