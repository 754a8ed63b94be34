import { useComputed } from "@preact/signals";
import type { ChartView } from "./view";
import "./zoomed.css";

/** While only a stretch of the x axis is looked at: a button back to all of it. */
export function Zoomed({ view }: { view: ChartView }) {
  const isZoomed = useComputed(() => view.range.value !== null); // not the range itself, which changes with every frame
  if (!isZoomed.value) return null;
  return (
    <button
      type="button"
      class="chart-range"
      onClick={() => view.setRange(null, true)}
      title="all of it (double click)"
    >
      zoomed ×
    </button>
  );
}
