import { Empty } from "../../ui/empty";

export function RunsPage() {
  return <Empty title="Runs" />;
}
