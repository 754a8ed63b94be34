import type { RunTable } from "../data/types";
import { number, plural } from "../words";
import "./group-head.css";

/** The line above the runs of a group: its name, how many, how many live, the best value. */
export function GroupHead({ group }: { group: RunTable["groups"][number] }) {
  const parts = [plural(group.count, "run")];
  if (group.live) parts.push(`${group.live} live`);
  if (group.best !== null) parts.push(`best ${number(group.best)}`);
  return (
    <div class="group-head" role="row">
      <span role="gridcell" class="clip">
        <b>{group.key || "none"}</b> {parts.join(" · ")}
      </span>
    </div>
  );
}
