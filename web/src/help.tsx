/** `?`: every key of what is on the screen, by section. */
import { signal } from "@preact/signals";
import { board } from "./data/state";
import { type Command, commands, shownKeys } from "./keys";
import { Dialog } from "./ui/dialog";
import "./help.css";

const open = signal(false);

export function openHelp(): void {
  open.value = true;
}

export function Help() {
  if (!open.value) return null;
  const sections = new Map<string, Command[]>();
  for (const command of commands.value) {
    if (!command.keys?.length || !command.text) continue;
    sections.set(command.section, [...(sections.get(command.section) ?? []), command]);
  }
  const everywhere = sections.get("everywhere");
  sections.delete("everywhere");
  const ordered = [...sections, ...(everywhere ? [["everywhere", everywhere] as const] : [])];
  return (
    <Dialog title="Keys" kind="wide" onClose={() => (open.value = false)}>
      <div class="help">
        {ordered.map(([section, entries]) => (
          <section key={section}>
            <h3>{section}</h3>
            <dl>
              {entries.map((command) => (
                <div key={command.text}>
                  <dt>
                    {shownKeys(command).map((key) => (
                      <kbd key={key}>{key}</kbd>
                    ))}
                  </dt>
                  <dd>{command.text}</dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
      </div>
      <p class="faint">linnet {board.value?.version} · the same keys as in the terminal: linnet board</p>
    </Dialog>
  );
}
