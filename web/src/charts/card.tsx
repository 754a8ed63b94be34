import { useSignal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { problem } from "../ui/toast";
import { Chart, type ChartProps } from "./chart";
import { ChartTable } from "./chart-table";
import { exportItems } from "./export";
import { FullScreenIcon, MoreIcon, PinIcon } from "./icons";
import { Legend } from "./legend";
import { Menu, type MenuItem } from "./menu";
import { headline } from "./summary";
import type { ChartSurface } from "./surface";
import { useThrottled } from "./throttled";
import { boardView } from "./view";
import "./card.css";

export interface ChartCardProps extends Omit<ChartProps, "label" | "onReadout" | "height"> {
  /** By default the first key. */
  title?: string;
  /** Wide enough for words beside the title. */
  large?: boolean;
  legend?: boolean;
  pinned?: boolean;
  onPin?: () => void;
  onFullScreen?: () => void;
  /** More for its menu. */
  items?: readonly (readonly MenuItem[])[];
  /** Before the title: something to take hold of. */
  grip?: ComponentChildren;
}

/**
 * A chart with its title, headline and buttons, as it stands in a grid. It fills its parent.
 *
 * ```tsx
 * <ChartCard runs={[id]} keys={["grad_norm"]} />
 * ```
 */
export function ChartCard(props: ChartCardProps) {
  const { keys, heldOut, view = boardView, large = false, legend = false } = props;
  const title = props.title ?? keys[0] ?? "";
  const [surface, setSurface] = useState<ChartSurface | null>(null);
  const [table, setTable] = useState(false);
  const readout = useSignal<string | null>(null);
  const drawn = keys.length > 1 && heldOut?.size ? "training — · held out ┄" : heldOut?.size ? "held out" : "";
  const menu: (readonly MenuItem[])[] = [
    ...(props.items ?? []),
    [{ text: "table", checked: table, run: () => setTable(!table) }],
    surface ? exportItems(surface, title, problem) : [],
  ];
  return (
    <div class={large ? "chart-card large" : "chart-card"}>
      <header>
        {props.grip}
        <h3>
          <span class="clip">{title}</span>
          {drawn && <em class="clip">{drawn}</em>}
        </h3>
        <span class="grow" />
        <span class="chart-readout" aria-hidden="true">
          {readout}
        </span>
        {surface && <ChartHeadline surface={surface} keys={keys} large={large} />}
        <div class="chart-actions">
          {props.onPin && (
            <button
              type="button"
              class="icon-button"
              aria-label={`pin ${title}`}
              title={props.pinned ? "not pinned any more (p)" : "pin: it stands first (p)"}
              aria-pressed={props.pinned ?? false}
              onClick={props.onPin}
            >
              <PinIcon />
            </button>
          )}
          {props.onFullScreen && (
            <button
              type="button"
              class="icon-button"
              aria-label={`${title} on the whole screen`}
              title="whole screen (Enter)"
              onClick={props.onFullScreen}
            >
              <FullScreenIcon />
            </button>
          )}
          <Menu label={`more about ${title}`} groups={menu.filter((group) => group.length)}>
            <MoreIcon />
          </Menu>
        </div>
      </header>
      <div class="chart-body">
        <Chart
          {...props}
          view={view}
          label={`${title}: lines of ${props.runs.length} runs, as a table behind`}
          onReadout={(text) => {
            readout.value = text;
          }}
          onReady={(ready) => {
            setSurface(ready);
            props.onReady?.(ready);
          }}
        />
        {surface && <ChartTable model={surface.model} title={title} seen={table} />}
      </div>
      {legend && surface && <Legend model={surface.model} />}
    </div>
  );
}

/** In the corner: warnings, else the best value, else the last. */
function ChartHeadline({ surface, keys, large }: { surface: ChartSurface; keys: readonly string[]; large: boolean }) {
  const lines = useThrottled(surface.model.lines, 500);
  const { text, warning, title } = headline(lines, keys, surface.model.axis, large);
  return (
    <span class={warning ? "chart-headline warn clip" : "chart-headline clip"} title={title}>
      {text}
    </span>
  );
}
