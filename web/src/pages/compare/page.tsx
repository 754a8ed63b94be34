import { Empty } from "../../ui/empty";

export function ComparePage() {
  return <Empty title="Compare" />;
}
