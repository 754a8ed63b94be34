import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { baselinesOf } from "../data/state";
import { ChartModel } from "./model";
import type { ChartSubject } from "./styling";
import { ChartSurface } from "./surface";
import { boardView, type ChartView } from "./view";
import "./chart.css";

export interface ChartProps {
  /** Ids of the runs, each drawn in its own colour. */
  runs: readonly string[];
  /** The metric of the chart, and others that share its axes. */
  keys: readonly string[];
  /** Of these keys, what is measured on held-out data: dashed. */
  heldOut?: ReadonlySet<string>;
  /** What each run was set to, where the view groups runs by a setting. */
  settings?: ChartSubject["settings"];
  /** Axis, smoothing, scales and range; by default those of the address, which all charts of the board share. */
  view?: ChartView;
  /** CSS height; by default all of the parent's. */
  height?: string;
  wheelZooms?: boolean;
  /** What the chart is of, for screen readers. */
  label?: string;
  /** Told what stands at the cursor, in a few words. */
  onReadout?: (text: string | null) => void;
  /** Given the parts of the chart as soon as they are there: for legends, exports, keys. */
  onReady?: (surface: ChartSurface | null) => void;
}

const NO_KEYS: ReadonlySet<string> = new Set();
const NO_SETTINGS: ChartSubject["settings"] = new Map();

/**
 * Series of runs as lines: fetched for what is in sight and as wide as it is, followed while runs are live, with zoom,
 * pan and the cursor that goes through all charts.
 *
 * ```tsx
 * <Chart runs={["wide", "narrow"]} keys={["loss", "validation/loss"]} heldOut={new Set(["validation/loss"])} height="240px" />
 * ```
 */
export function Chart(props: ChartProps) {
  const { runs, keys, heldOut = NO_KEYS, settings = NO_SETTINGS, view = boardView } = props;
  const host = useRef<HTMLDivElement>(null);
  const baselines = baselinesOf(runs);
  const names = JSON.stringify([runs, baselines, keys, [...heldOut]]);
  const subject = useMemo<ChartSubject>(() => ({ runs, baselines, keys, heldOut, settings }), [names, settings]);
  const latest = useRef(props);
  latest.current = props;
  const [model, setModel] = useState<ChartModel | null>(null);

  useLayoutEffect(() => {
    const element = host.current;
    if (!element) return;
    const made = new ChartModel(view, subject);
    const surface = new ChartSurface(element, made, {
      wheelZooms: latest.current.wheelZooms ?? false,
      onReadout: (text) => latest.current.onReadout?.(text),
    });
    setModel(made);
    latest.current.onReady?.(surface);
    return () => {
      latest.current.onReady?.(null);
      surface.dispose();
      made.dispose();
    };
  }, [view]);
  useEffect(() => model?.setSubject(subject), [model, subject]);

  const height = props.height ?? "100%";
  return (
    <div class="chart-plot" style={{ height }} role="img" aria-label={props.label ?? keys.join(", ")}>
      <div class="chart-surface" ref={host} />
      <ChartNotice model={model} />
    </div>
  );
}

/** In place of lines: that they are on their way, that there are none, or why. */
function ChartNotice({ model }: { model: ChartModel | null }) {
  const status = model?.status.value ?? "loading";
  if (status === "ready") return null;
  if (typeof status === "object") return <p class="chart-notice bad">{status.problem}</p>;
  const axis = model?.axis ?? "step";
  const none = axis === "step" ? "no rows yet" : `no rows that tell of ${axis}`;
  return <p class="chart-notice">{status === "loading" ? "…" : none}</p>;
}
