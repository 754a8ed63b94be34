import { shown } from "../../data/state";
import { Empty } from "../../ui/empty";
import { plural } from "../../words";
import { PageTitle } from "../page-title";
import { SamplesView } from "./view";

/** What the selected runs wrote, side by side. */
export function SamplesPage() {
  const runs = shown.value;
  if (runs.length === 0) return <Empty title="No runs are selected">Mark some in the list of runs.</Empty>;
  return (
    <div class="content">
      <PageTitle page title="Samples" note={`${plural(runs.length, "run")}, side by side`} />
      <SamplesView runs={runs} />
    </div>
  );
}
