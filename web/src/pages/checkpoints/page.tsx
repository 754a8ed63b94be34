import { shown } from "../../data/state";
import { Empty } from "../../ui/empty";
import { plural } from "../../words";
import { PageTitle } from "../page-title";
import { CheckpointsView } from "./view";

/** The checkpoints of the selected runs in one table. */
export function CheckpointsPage() {
  const runs = shown.value;
  if (runs.length === 0) return <Empty title="No runs are selected">Mark some in the list of runs.</Empty>;
  return (
    <div class="content">
      <PageTitle page title="Checkpoints" note={`of ${plural(runs.length, "run")}`} />
      <CheckpointsView runs={runs} />
    </div>
  );
}
