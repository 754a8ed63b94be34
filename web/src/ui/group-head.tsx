import { type GroupItem, membersOf, toggleFold } from "../data/listing";
import { number, plural } from "../words";
import "./group-head.css";

/** The line above the runs of a group: its name, how many, how many live, the best value. A click folds it. */
export function GroupHead({ item, onMark }: { item: GroupItem; onMark?(ids: string[]): void }) {
  const { group, folded } = item;
  const parts = [plural(group.count, "run")];
  if (group.live) parts.push(`${group.live} live`);
  if (group.best !== null) parts.push(`best ${number(group.best)}`);
  return (
    <div class="group-head" role="row">
      <span role="gridcell" class="clip">
        <button type="button" aria-expanded={!folded} class="group-fold clip" onClick={() => toggleFold(group.key)}>
          <span class="group-sign" aria-hidden="true">
            {folded ? "▸" : "▾"}
          </span>
          <b>{group.key || "none"}</b> {parts.join(" · ")}
        </button>
      </span>
      {onMark && (
        <span role="gridcell">
          <button type="button" class="group-mark" onClick={() => onMark(membersOf(group))}>
            mark all
          </button>
        </span>
      )}
    </div>
  );
}
