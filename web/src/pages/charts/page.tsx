import type { ComponentChildren } from "preact";
import { useCallback, useEffect } from "preact/hooks";
import { headerControls } from "../../app";
import { shown, table } from "../../data/state";
import { Empty } from "../../ui/empty";
import { ChartGrid } from "./grid";

/** The runs that are shown, overlaid: a chart for each metric. */
export function ChartsPage() {
  const controls = useCallback((children: ComponentChildren) => {
    headerControls.value = children;
  }, []);
  useEffect(
    () => () => {
      headerControls.value = null;
    },
    [],
  );
  if (table.value && !shown.value.length) return <Empty title="no run is shown: choose some in the list" />;
  return (
    <>
      <h1 class="unseen">Charts</h1>
      <ChartGrid runs={shown.value} onControls={controls} samples />
    </>
  );
}
