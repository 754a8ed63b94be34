import { Empty } from "../../ui/empty";

export function SamplesPage() {
  return <Empty title="Samples" />;
}
