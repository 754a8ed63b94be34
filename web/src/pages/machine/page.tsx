import { shown } from "../../data/state";
import { Empty } from "../../ui/empty";
import { plural } from "../../words";
import { PageTitle } from "../page-title";
import { MachineView } from "./view";

/** What the machines of the selected runs did. */
export function MachinePage() {
  const runs = shown.value;
  if (runs.length === 0) return <Empty title="No runs are selected">Mark some in the list of runs.</Empty>;
  return (
    <div class="content">
      <PageTitle page title="Machine" note={`of ${plural(runs.length, "run")}`} />
      <MachineView runs={runs} />
    </div>
  );
}
