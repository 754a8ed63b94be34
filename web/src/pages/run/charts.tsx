import { useEffect, useMemo } from "preact/hooks";
import { headerControls } from "../../app";
import type { RunDetail } from "../../data/types";
import { ChartGrid } from "../charts/grid";

/** The charts of one run. */
export function ChartsTab({ detail }: { detail: RunDetail }) {
  const { id } = detail.row;
  const runs = useMemo(() => [id], [id]);
  useEffect(
    () => () => {
      headerControls.value = null;
    },
    [],
  );
  return <ChartGrid runs={runs} onControls={showControls} />;
}

function showControls(controls: typeof headerControls.value): void {
  headerControls.value = controls;
}
