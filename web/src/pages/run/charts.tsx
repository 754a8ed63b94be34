import type { RunDetail } from "../../data/types";

/** The charts of one run. */
export function ChartsTab({ detail }: { detail: RunDetail }) {
  return <p class="faint">{detail.metrics.length} metrics</p>;
}
