import { Empty } from "../../ui/empty";

export function ChartsPage() {
  return <Empty title="Charts" />;
}
