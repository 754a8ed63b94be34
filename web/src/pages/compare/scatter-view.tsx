import { useMemo } from "preact/hooks";
import { choice, pageParam, text } from "../../address";
import { colourOf, nameOf } from "../../data/state";
import type { Cell } from "../../ui/data-table";
import { PictureMenu } from "../../ui/picture-menu";
import { Segmented } from "../../ui/segmented";
import { useWidth } from "../../ui/width";
import { number, plural } from "../../words";
import { PageTitle } from "../page-title";
import { settingText } from "../run/settings";
import { axisSettings, type Comparison, type Taken } from "./comparison";
import { Choice, chosenResult, ResultSelect } from "./metric-select";
import { scaleFor } from "./scale";
import { buildScatter, type Scatter, type ScatterGroup } from "./scatter";
import "./scatter.css";

const againstParam = pageParam("against", text, "");
const xScaleParam = pageParam("xscale", choice("auto", "linear", "log"), "auto");
const yScaleParam = pageParam("yscale", choice("linear", "log"), "linear");
const HEIGHT = 300;
const LEFT = 56;

/** Any setting against any metric; runs that differ only in their seed are one point with its deviation. */
export function ScatterView({ comparison, taken }: { comparison: Comparison; taken: Taken }) {
  const { runs, metrics, differing } = comparison;
  const settings = useMemo(() => {
    const first = axisSettings(comparison);
    return [...first, ...differing.filter((name) => !first.includes(name))];
  }, [comparison]);
  const metric = chosenResult(metrics);
  const setting = settings.includes(againstParam.value)
    ? againstParam.value
    : (settings.find((name) => /(^|\.)lr$/.test(name)) ?? settings[0]);
  if (!metric || setting === undefined || runs.length < 2) return null;
  return (
    <section aria-label="A setting against a result">
      <PageTitle title="A setting against a result">
        <Choice
          label="setting"
          options={settings}
          value={setting}
          onChange={(name) => {
            againstParam.value = name;
          }}
        />
        <ResultSelect metrics={metrics} />
        <Segmented
          label="x axis"
          options={["auto", "linear", "log"]}
          names={{ auto: "x auto", linear: "linear", log: "log" }}
          value={xScaleParam.value}
          onChange={(kind) => {
            xScaleParam.value = kind;
          }}
        />
        <Segmented
          label="y axis"
          options={["linear", "log"]}
          names={{ linear: "y linear", log: "log" }}
          value={yScaleParam.value}
          onChange={(kind) => {
            yScaleParam.value = kind;
          }}
        />
      </PageTitle>
      <ScatterPlot comparison={comparison} setting={setting} metric={metric.key} taken={taken} />
    </section>
  );
}

interface ScatterPlotProps {
  comparison: Comparison;
  setting: string;
  metric: string;
  taken: Taken;
}

function ScatterPlot({ comparison: { runs }, setting, metric, taken }: ScatterPlotProps) {
  const [element, width] = useWidth<HTMLDivElement>(720);
  const scatter = useMemo(() => buildScatter(runs, setting, metric, taken), [runs, setting, metric, taken]);
  const xs = [...scatter.groups.map(({ x }) => x), ...scatter.diverged.map(({ x }) => x)];
  const xScale = scaleFor(xs, xScaleParam.value === "auto" ? "auto" : xScaleParam.value === "log");
  const ends = scatter.groups.flatMap(({ values, mean, spread }) => [
    ...values,
    mean - (spread ?? 0),
    mean + (spread ?? 0),
  ]);
  const yScale = scaleFor(ends, yScaleParam.value === "log", 0.08);
  const x = (value: unknown) => LEFT + (xScale.position(value) ?? 0) * (width - LEFT - 12);
  const y = (value: number) => HEIGHT - (yScale.position(value) ?? 0) * HEIGHT;
  const ticks = xScale.ticks(Math.max(2, Math.floor(width / 90)));
  return (
    <div class="card scatter">
      <div class="picture-menu">
        <PictureMenu
          picture={() => element.current?.querySelector("svg") ?? null}
          name={`${metric} against ${setting}`}
          table={() => scatterTable(scatter, setting, metric)}
        />
      </div>
      <div ref={element}>
        <svg
          viewBox={`0 -8 ${width} ${HEIGHT + 44}`}
          role="img"
          aria-label={`${metric} against ${setting}, ${plural(runs.length, "run")}; the tables tell the same`}
        >
          {yScale.ticks(5).map(({ at, text: label }) => (
            <g key={label}>
              <line x1={LEFT} x2={width} y1={HEIGHT - at * HEIGHT} y2={HEIGHT - at * HEIGHT} stroke="var(--line)" />
              <text x={LEFT - 8} y={HEIGHT - at * HEIGHT} text-anchor="end" dominant-baseline="central">
                {label}
              </text>
            </g>
          ))}
          {ticks.map(({ at, text: label }) => (
            <text key={label} x={LEFT + at * (width - LEFT - 12)} y={HEIGHT + 16} text-anchor="middle">
              {label.length > 16 ? `${label.slice(0, 15)}…` : label}
            </text>
          ))}
          <text class="axis-name" x={width - 12} y={HEIGHT + 33} text-anchor="end">
            {setting}
            {xScale.kind === "log" ? ", log" : ""}
          </text>
          {scatter.groups.map((group) => (
            <Point key={group.runs.join()} group={group} cx={x(group.x)} y={y} metric={metric} />
          ))}
          {scatter.diverged.map(({ x: value, run }) => (
            <text key={run} class="diverged" x={x(value)} y={6} text-anchor="middle">
              ×<title>{`${nameOf(run)}: ${metric} is not finite`}</title>
            </text>
          ))}
        </svg>
      </div>
      <p class="faint">
        {[
          scatter.groups.some(({ runs: members }) => members.length > 1) &&
            "runs that differ only in their seed: mean and deviation, each run pale",
          scatter.diverged.length > 0 && `× ${plural(scatter.diverged.length, "run")} not finite`,
          scatter.without > 0 && `${plural(scatter.without, "run")} without this setting or result`,
        ]
          .filter(Boolean)
          .join(" · ")}
      </p>
    </div>
  );
}

/** A row for each run: what is drawn, in numbers. */
function scatterTable(scatter: Scatter, setting: string, metric: string): Cell[][] {
  const rows = scatter.groups.flatMap(({ x, runs, values }) =>
    runs.map((run, index): Cell[] => [run, settingText(x), values[index] ?? null]),
  );
  const diverged = scatter.diverged.map(({ x, run }): Cell[] => [run, settingText(x), "not finite"]);
  return [["run", setting, metric], ...rows, ...diverged];
}

interface PointProps {
  group: ScatterGroup;
  cx: number;
  y(value: number): number;
  metric: string;
}

function Point({ group, cx, y, metric }: PointProps) {
  const { runs, values, mean, spread } = group;
  const colour = colourOf(runs[0] ?? "");
  const title = `${runs.map(nameOf).join(", ")}: ${metric} ${number(mean)}${spread === null ? "" : ` ± ${number(spread, 2)}`} at ${settingText(group.x)}`;
  return (
    <g class="point">
      <title>{title}</title>
      {spread !== null && (
        <line x1={cx} x2={cx} y1={y(mean - spread)} y2={y(mean + spread)} stroke={colour} stroke-width={1.5} />
      )}
      {spread !== null &&
        values.map((value, index) => (
          <circle key={runs[index]} cx={cx} cy={y(value)} r={3} fill={colour} opacity={0.35} />
        ))}
      <circle cx={cx} cy={y(mean)} r={5} fill={colour} stroke="var(--panel)" stroke-width={1.5} />
    </g>
  );
}
