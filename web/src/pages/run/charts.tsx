import { useMemo } from "preact/hooks";
import type { RunDetail } from "../../data/types";
import { showInHeader } from "../../header";
import { ChartGrid } from "../charts/grid";

/** The charts of one run. */
export function ChartsTab({ detail }: { detail: RunDetail }) {
  const { id } = detail.row;
  const runs = useMemo(() => [id], [id]);
  return <ChartGrid runs={runs} onControls={showInHeader} />;
}
