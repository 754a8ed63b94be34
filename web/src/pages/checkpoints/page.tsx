import { Empty } from "../../ui/empty";

export function CheckpointsPage() {
  return <Empty title="Checkpoints" />;
}
