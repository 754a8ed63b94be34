import { useMemo, useRef, useState } from "preact/hooks";
import { list, pageParam } from "../../address";
import { colourOf, marked, nameOf } from "../../data/state";
import type { RunMetrics } from "../../data/types";
import { Button } from "../../ui/button";
import { followPointer } from "../../ui/drag";
import { PictureMenu } from "../../ui/picture-menu";
import { number, plural } from "../../words";
import { PageTitle } from "../page-title";
import { settingText } from "../run/settings";
import { axisSettings, type Comparison, resultOf, type Taken } from "./comparison";
import { chosenResult, ResultSelect } from "./metric-select";
import { adjusted, type Brush, brushBetween, brushCodec, moved, passes } from "./parallel";
import { type Scale, scaleFor } from "./scale";
import "./axis-choice.css";
import "./parallel.css";

const axesParam = pageParam("axes", list, []);
const brushParam = pageParam("brush", brushCodec, new Map<string, Brush>());
const MOST_AXES = 10;
const HEIGHT = 260;
const GAP = 132; // pixels between two axes
const TOP = 40;
const SIDE = 64;
const DRAG_FROM = 4; // pixels: less is a click
const KEY_STEP = 0.05;
const KEYS_ID = "axis-keys";

interface ParallelAxis {
  name: string;
  scale: Scale;
  isResult: boolean;
}

/** An axis for each setting and one for the result; brushes on axes filter, names are dragged to another place. */
export function ParallelView({ comparison, taken }: { comparison: Comparison; taken: Taken }) {
  const { runs, metrics } = comparison;
  const picture = useRef<SVGSVGElement>(null);
  const metric = chosenResult(metrics);
  const available = useMemo(() => axisSettings(comparison), [comparison]);
  const names = orderOf(available, metric?.key);
  const valueOn = (run: RunMetrics, name: string) =>
    name === metric?.key ? resultOf(run, name, taken) : run.settings[name];
  const axes = useMemo(
    () =>
      names.map((name): ParallelAxis => {
        const values = runs.map((run) => valueOn(run, name));
        return { name, scale: scaleFor(values, "auto", 0), isResult: name === metric?.key };
      }),
    [comparison, names.join("\n"), taken],
  );
  const lines = useMemo(
    () =>
      runs.map((run) => ({
        run,
        id: run.id,
        positions: new Map(axes.map(({ name, scale }) => [name, scale.position(valueOn(run, name))])),
      })),
    [axes],
  );
  if (runs.length < 2 || axes.length < 2) return null;
  const brushes = brushParam.value;
  const kept = lines.filter(({ positions }) => passes(positions, brushes)).map(({ id }) => id);
  const isKept = new Set(kept);
  const setBrush = (name: string, brush: Brush | null, replace = false) => {
    const next = new Map(brushes);
    if (brush) next.set(name, brush);
    else next.delete(name);
    if (replace) brushParam.replace(next);
    else brushParam.value = next;
  };
  const width = 2 * SIDE + (axes.length - 1) * GAP;
  const x = (axis: number) => SIDE + axis * GAP;
  return (
    <section aria-label="Parallel coordinates">
      <PageTitle
        title="Parallel coordinates"
        note={
          brushes.size
            ? `${kept.length} of ${plural(runs.length, "run")} pass`
            : `${plural(runs.length, "run")}; drag along an axis to filter, drag a name to move it`
        }
      >
        {brushes.size > 0 && (
          <>
            <Button
              onClick={() => {
                brushParam.value = new Map();
              }}
            >
              all runs
            </Button>
            {kept.length > 0 && kept.length < runs.length && (
              <Button
                kind="main"
                onClick={() => {
                  marked.value = kept;
                }}
              >
                only these {kept.length}
              </Button>
            )}
          </>
        )}
        <ResultSelect metrics={metrics} />
        <PictureMenu
          picture={() => picture.current}
          name="parallel coordinates"
          table={() => [
            ["run", ...names],
            ...runs.map((run) => [run.id, ...names.map((name) => valueText(valueOn(run, name)))]),
          ]}
        />
      </PageTitle>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard */}
      <section class="card parallel" tabIndex={0} aria-label="Parallel coordinates, which scroll">
        <svg
          ref={picture}
          width={width}
          height={HEIGHT + TOP + 30}
          viewBox={`0 0 ${width} ${HEIGHT + TOP + 30}`}
          aria-label={`${axes.length} axes`}
        >
          {drawnLast(lines, isKept).map(({ run, id, positions }) => (
            <path
              key={id}
              class={isKept.has(id) ? "run-line" : "run-line out"}
              d={linePath(axes.map(({ name }, axis) => [x(axis), positions.get(name) ?? null]))}
              stroke={colourOf(id)}
            >
              <title>{`${nameOf(id)}\n${axes.map(({ name }) => `${name} ${valueText(valueOn(run, name))}`).join("\n")}`}</title>
            </path>
          ))}
          {axes.map((axis, index) => (
            <AxisView
              key={axis.name}
              axis={axis}
              x={x(index)}
              brush={brushes.get(axis.name)}
              onBrush={(brush, replace) => setBrush(axis.name, brush, replace)}
              onMove={(by) => {
                axesParam.value = moved(names, axis.name, by);
              }}
            />
          ))}
        </svg>
      </section>
      <p id={KEYS_ID} class="unseen">
        Left and right move the axis, up and down the lower end of its filter, with Shift the upper; Escape clears it.
      </p>
      <AxisChoice available={available} names={names} result={metric?.key} />
    </section>
  );

  function orderOf(settings: readonly string[], result: string | undefined): string[] {
    const allowed = new Set([...settings, ...(result === undefined ? [] : [result])]);
    const asked = axesParam.value.filter((name) => allowed.has(name));
    if (asked.length > 0) return result === undefined || asked.includes(result) ? asked : [...asked, result];
    return [...settings.slice(0, MOST_AXES - 1), ...(result === undefined ? [] : [result])];
  }
}

/** Lines that pass stand above those that do not. */
function drawnLast<T extends { id: string }>(lines: readonly T[], isKept: ReadonlySet<string>): T[] {
  return [...lines.filter(({ id }) => !isKept.has(id)), ...lines.filter(({ id }) => isKept.has(id))];
}

function valueText(value: unknown): string {
  return typeof value === "number" && !Number.isInteger(value) ? number(value) : settingText(value);
}

/** A line through the axes; it breaks where a run has no value. */
function linePath(points: readonly [number, number | null][]): string {
  let path = "";
  let pen = "M";
  for (const [x, position] of points) {
    if (position === null) pen = "M";
    else {
      path += `${pen}${x} ${TOP + (1 - position) * HEIGHT}`;
      pen = "L";
    }
  }
  return path;
}

interface AxisViewProps {
  axis: ParallelAxis;
  x: number;
  brush: Brush | undefined;
  onBrush(brush: Brush | null, replace?: boolean): void;
  onMove(by: number): void;
}

function AxisView({ axis, x, brush, onBrush, onMove }: AxisViewProps) {
  const [drag, setDrag] = useState(0);
  const label = axis.name.length > 18 ? `…${axis.name.slice(-17)}` : axis.name;
  return (
    <g transform={`translate(${x + drag} 0)`}>
      <g
        class={axis.isResult ? "axis-handle result" : "axis-handle"}
        role="button"
        tabindex={0}
        aria-describedby={KEYS_ID}
        onKeyDown={(event) => {
          if (event.key === "ArrowLeft") onMove(-1);
          else if (event.key === "ArrowRight") onMove(1);
          else if (event.key === "ArrowUp") onBrush(adjusted(brush, event.shiftKey ? "to" : "from", KEY_STEP));
          else if (event.key === "ArrowDown") onBrush(adjusted(brush, event.shiftKey ? "to" : "from", -KEY_STEP));
          else if (event.key === "Escape" && brush) onBrush(null);
          else return;
          event.preventDefault();
          event.stopPropagation();
        }}
        onPointerDown={(event) => {
          const handle = event.currentTarget;
          const start = event.clientX;
          handle.setPointerCapture(event.pointerId);
          followPointer(handle, {
            move: (next) => setDrag(next.clientX - start),
            end: (last) => {
              setDrag(0);
              const by = Math.round((last.clientX - start) / GAP);
              if (by !== 0) onMove(by);
            },
          });
        }}
      >
        <rect class="hit" x={-GAP / 2 + 4} y={4} width={GAP - 8} height={22} rx={5} />
        <text x={0} y={19} text-anchor="middle">
          {label}
          <title>{axis.name}</title>
        </text>
      </g>
      <line y1={TOP} y2={TOP + HEIGHT} stroke="var(--ghost)" />
      {axis.scale.ticks(axis.scale.kind === "category" ? 12 : 5).map(({ at, text }) => (
        <text key={text} class="tick" x={7} y={TOP + (1 - at) * HEIGHT} dominant-baseline="central">
          {text.length > 14 ? `${text.slice(0, 13)}…` : text}
        </text>
      ))}
      <BrushArea brush={brush} onBrush={onBrush} />
    </g>
  );
}

function BrushArea({ brush, onBrush }: Pick<AxisViewProps, "brush" | "onBrush">) {
  return (
    <>
      {brush && (
        <rect
          class="brush"
          x={-9}
          width={18}
          y={TOP + (1 - brush.to) * HEIGHT}
          height={(brush.to - brush.from) * HEIGHT}
          rx={4}
        />
      )}
      <rect
        class="brush-area"
        x={-14}
        width={28}
        y={TOP}
        height={HEIGHT}
        onPointerDown={(event) => {
          const rect = event.currentTarget;
          const box = rect.getBoundingClientRect();
          const positionOf = ({ clientY }: PointerEvent) =>
            Math.max(0, Math.min(1, 1 - (clientY - box.top) / box.height));
          const startY = event.clientY;
          const start = positionOf(event);
          rect.setPointerCapture(event.pointerId);
          const brushTo = (next: PointerEvent): Brush | null =>
            Math.abs(next.clientY - startY) < DRAG_FROM ? null : brushBetween(start, positionOf(next));
          followPointer(rect, { move: (next) => onBrush(brushTo(next), true), end: (last) => onBrush(brushTo(last)) });
        }}
      />
    </>
  );
}

interface AxisChoiceProps {
  available: readonly string[];
  names: readonly string[];
  result: string | undefined;
}

function AxisChoice({ available, names, result }: AxisChoiceProps) {
  if (available.length < 3) return null;
  return (
    <div class="axis-choice">
      {available.slice(0, 60).map((name) => {
        const isOn = names.includes(name);
        return (
          <button
            key={name}
            type="button"
            aria-pressed={isOn}
            onClick={() => {
              const others = names.filter((other) => other !== name && other !== result);
              axesParam.value = [...(isOn ? others : [...others, name]), ...(result === undefined ? [] : [result])];
            }}
          >
            {name}
          </button>
        );
      })}
    </div>
  );
}
