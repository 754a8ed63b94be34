import { shown, table } from "../../data/state";
import { showInHeader } from "../../header";
import { Empty } from "../../ui/empty";
import { ChartGrid } from "./grid";

/** The runs that are shown, overlaid: a chart for each metric. */
export function ChartsPage() {
  if (table.value && !shown.value.length) return <Empty title="no run is shown: choose some in the list" />;
  return (
    <>
      <h1 class="unseen">Charts</h1>
      <ChartGrid runs={shown.value} onControls={showInHeader} samples />
    </>
  );
}
