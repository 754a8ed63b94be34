import { Empty } from "../../ui/empty";

export function MachinePage() {
  return <Empty title="Machine" />;
}
