import { nameOf } from "../../data/state";
import { Empty } from "../../ui/empty";

/** One run; `tab` is the last part of the address, empty for the first tab. */
export function RunPage({ id }: { id: string; tab: string }) {
  return <Empty title={nameOf(id)} />;
}
