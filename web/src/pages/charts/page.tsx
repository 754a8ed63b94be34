import { Chart } from "../../charts/chart";
import { shown } from "../../data/state";

export function ChartsPage() {
  return (
    <Chart
      runs={shown.value}
      keys={["loss", "validation/loss"]}
      heldOut={new Set(["validation/loss"])}
      height="400px"
    />
  );
}
