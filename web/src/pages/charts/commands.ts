/** What keys do on the charts: those of the board in the terminal. */
import { batch } from "@preact/signals";
import { AXES, nextSmoothing, setAxis, boardView as view } from "../../charts/view";
import type { Axis } from "../../data/types";
import { type Command, useCommands } from "../../keys";
import type { ChartSection } from "./chart-list";
import { moveTo, resetPreferences, setSize, sizeOf, toggleConstants, toggleHidden, togglePinned } from "./preferences";
import { chartNumber, focusChart, moveSection, moveSelection, selectedKey, selectedSurface } from "./selection";
import { setSmoothing } from "./toolbar";

export interface ChartCommandTargets {
  readonly sections: readonly ChartSection[];
  readonly axes: readonly Axis[];
  readonly main: string | null;
  readonly columns: number;
  openChart(key: string): void;
  toggleShowHidden(): void;
  clearFilter(): void;
}

export function useChartCommands(targets: ChartCommandTargets): void {
  const withKey = (act: (key: string) => void) => () => {
    const key = selectedKey();
    if (key !== null) act(key);
  };
  const move = (by: number) =>
    withKey((key) => {
      const members = targets.sections
        .map(({ charts }) => charts.map((entry) => entry.key))
        .find((keys) => keys.includes(key));
      if (!members) return;
      moveTo(key, members.indexOf(key) + by, members);
      setTimeout(() => focusChart(key));
    });
  const resize = (columns: number, rows: number) =>
    withKey((key) => {
      const now = sizeOf(key, key === targets.main, targets.columns);
      setSize(key, { columns: now.columns + columns, rows: now.rows + rows });
    });
  const nextAxis = () => {
    const known = AXES.filter((axis) => targets.axes.includes(axis));
    setAxis(view, known[(known.indexOf(view.axis.value) + 1) % known.length] ?? "step");
  };
  const section = "charts";
  const commands: Command[] = [
    {
      keys: ["S", "s"],
      shown: "S",
      section,
      text: "smoothing off, light, medium, heavy",
      run: () => setSmoothing(nextSmoothing(view.smooth.value)),
    },
    { keys: ["x"], section, text: "x axis by step, tokens, epoch, wall time, relative time", run: nextAxis },
    { keys: ["l"], section, text: "log scale", run: () => toggle("logY") },
    { keys: ["L"], section, text: "log scale of the x axis", run: () => toggle("logX") },
    { keys: ["o"], section, text: "clip outliers", run: () => toggle("clip") },
    { keys: ["F"], section, text: "what a resume replaced", run: () => toggle("superseded") },
    { keys: ["p"], section, text: "pin the chart: it stands first; again: not any more", run: withKey(togglePinned) },
    { keys: ["("], section, text: "move the chart to an earlier place", run: move(-1) },
    { keys: [")"], section, text: "move the chart to a later place", run: move(1) },
    { keys: ["Shift+ArrowRight"], shown: "Shift+→", section, text: "make the chart wider", run: resize(1, 0) },
    { keys: ["Shift+ArrowLeft"], shown: "Shift+←", section, text: "make the chart narrower", run: resize(-1, 0) },
    { keys: ["Shift+ArrowDown"], shown: "Shift+↓", section, text: "make the chart higher", run: resize(0, 1) },
    { keys: ["Shift+ArrowUp"], shown: "Shift+↑", section, text: "make the chart lower", run: resize(0, -1) },
    { keys: ["h"], section, text: "hide the chart, or bring it back", run: withKey(toggleHidden) },
    { keys: ["H"], section, text: "show hidden metrics and constants too", run: targets.toggleShowHidden },
    { keys: ["z"], section, text: "charts for constants, or one line", run: toggleConstants },
    {
      keys: ["/"],
      section,
      text: "only charts whose name has these words, or fits a pattern: loss, blk.0*",
      run: () => document.getElementById("chart-filter")?.focus(),
    },
    {
      keys: ["Z"],
      section,
      text: "forget what was pinned, moved, hidden, resized and filtered",
      run: () =>
        batch(() => {
          resetPreferences();
          targets.clearFilter();
        }),
    },
    {
      keys: ["Enter"],
      section,
      text: "open the chart on the whole screen",
      run: withKey(targets.openChart),
      when: () => selectedKey() !== null,
    },
    { keys: ["+", "="], shown: "+", section, text: "closer", run: () => selectedSurface()?.zoomBy(0.5, 0.5) },
    { keys: ["-"], section, text: "farther", run: () => selectedSurface()?.zoomBy(2, 0.5) },
    { keys: [","], section, text: "earlier", run: () => selectedSurface()?.panBy(-0.25) },
    { keys: ["."], section, text: "later", run: () => selectedSurface()?.panBy(0.25) },
    { keys: ["[", "<"], shown: "[", section, text: "the section before", run: () => moveSection(-1) },
    { keys: ["]", ">"], shown: "]", section, text: "the next section", run: () => moveSection(1) },
    { keys: ["0"], section, text: "all of the x axis", run: () => view.setRange(null, view.range.value !== null) },
    ...(["left", "right", "up", "down"] as const).map(
      (direction): Command => ({
        keys: [`Arrow${direction.replace(/^./, (letter) => letter.toUpperCase())}`],
        shown: { left: "←", right: "→", up: "↑", down: "↓" }[direction],
        section,
        text: `select the chart ${direction === "up" ? "above" : direction === "down" ? "below" : `to the ${direction}`}`,
        keyOnly: true,
        run: () => moveSelection(direction),
      }),
    ),
    ...[1, 2, 3, 4, 5, 6, 7, 8, 9].map(
      (n): Command => ({
        keys: [String(n)],
        section,
        text: `open chart ${n}`,
        keyOnly: true,
        run: () => {
          const key = chartNumber(n);
          if (key) targets.openChart(key);
        },
      }),
    ),
  ];
  useCommands(commands);
}

function toggle(name: "logX" | "logY" | "clip" | "superseded"): void {
  view[name].value = !view[name].value;
}
