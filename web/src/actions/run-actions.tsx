import { useCommands } from "../keys";
import { Button } from "../ui/button";
import { ask, isWritable, setHidden } from "./actions";
import { areHidden, runCommands } from "./commands";
import "./run-actions.css";

/** What can be done to one run, as buttons and keys; nothing where nothing may be changed. */
export function RunActions({ id }: { id: string }) {
  useCommands(runCommands("this run", () => [id]));
  if (!isWritable()) return null;
  const hidden = areHidden([id]);
  return (
    <div class="run-actions" role="toolbar" aria-label="Change this run">
      <Button onClick={() => ask("tags", [id])} title="Tags (#)">
        Tag
      </Button>
      <Button onClick={() => ask("name", [id])} title="Name (F2)">
        Rename
      </Button>
      <Button onClick={() => void setHidden([id], !hidden)} title="Hide, or bring back (h)">
        {hidden ? "Show again" : "Hide"}
      </Button>
      <Button onClick={() => ask("delete", [id])} title="Delete">
        Delete
      </Button>
    </div>
  );
}
