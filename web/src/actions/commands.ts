/** What can be done to runs, as commands: for the table and for a run's page. */
import { known } from "../data/state";
import type { Command } from "../keys";
import { ask, isWritable, setHidden } from "./actions";

/** `targets`: the runs that are meant at the moment of the key. */
export function runCommands(section: string, targets: () => readonly string[]): Command[] {
  const may = () => isWritable() && targets().length > 0;
  return [
    { keys: ["#"], section, text: "tags", when: may, run: () => ask("tags", targets()) },
    { keys: ["F2"], section, text: "name", when: may, run: () => ask("name", targets().slice(0, 1)) },
    {
      keys: ["h"],
      section,
      text: "hide, or bring back",
      when: may,
      run: () => void setHidden(targets(), !areHidden(targets())),
    },
    { keys: ["Delete"], section, text: "delete", when: may, run: () => ask("delete", targets()) },
  ];
}

export function areHidden(ids: readonly string[]): boolean {
  return ids.every((id) => known.value.get(id)?.hidden);
}
