/**
 * Commands: what a key does, what the help says of it, and what the command palette finds.
 *
 * Keys are those of the board in the terminal (board/terminal/keys.py). A page registers its commands while it is on
 * the screen; of two commands with one key that of what was drawn later wins: a tab before its page, a dialog before both.
 */
import { computed, signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface Command {
  /** As `KeyboardEvent.key` has it, with `Ctrl+` before (⌘ on a Mac): "S", "Enter", "Ctrl+k". None: palette only. */
  keys?: readonly string[];
  /** How the help shows the keys, two spaces between them; by default as they are. */
  shown?: string;
  section: string;
  text: string;
  run(event?: KeyboardEvent): void;
  /** Whether it can be done now; by default it can. */
  when?: () => boolean;
  /** Left out of the command palette: it makes sense only as a key. */
  keyOnly?: boolean;
}

interface Layer {
  order: number;
  commands: readonly Command[];
}

const layers = signal<readonly Layer[]>([]);
let rendered = 0;
/** What stands before a letter that is pressed with Ctrl, or with ⌘ on a Mac. */
export const commandKey = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl+";

/** The keys of a command as the help shows them. */
export function shownKeys(command: Command): string[] {
  if (command.shown !== undefined) return command.shown.split("  ");
  return (command.keys ?? []).map((key) => key.replace("Ctrl+", commandKey).replace("Escape", "Esc"));
}

/** Every command of what is on the screen, those of what was drawn last first. */
export const commands = computed(() => layers.value.flatMap((layer) => layer.commands));

/** Registers commands until the function that it gives is called. Of greater `order`: before the others. */
export function register(added: readonly Command[], order = ++rendered): () => void {
  const layer = { order, commands: added };
  layers.value = [layer, ...layers.peek()].sort((a, b) => b.order - a.order);
  return () => {
    layers.value = layers.peek().filter((other) => other !== layer);
  };
}

/** Registers commands while a component is on the screen. They are looked at anew at each call: closures stay fresh. */
export function useCommands(latest: readonly Command[]): void {
  const current = useRef(latest);
  current.current = latest;
  // A page is drawn after the frame around it, though its effects run first: what stands inside goes before.
  const order = useRef(0);
  order.current ||= ++rendered;
  // At once, not after the next frame: a key that is pressed before it would still go to the page that is gone.
  useLayoutEffect(
    () =>
      register(
        current.current.map((command, index) => ({
          ...command,
          run: (event) => current.current[index]?.run(event),
          when: () => current.current[index]?.when?.() ?? true,
        })),
        order.current,
      ),
    [],
  );
}

/** A dialog is open: only its own keys count. */
export const modal = signal(0);

export function keyName(event: KeyboardEvent): string {
  const steering = event.ctrlKey || event.metaKey ? "Ctrl+" : "";
  const shift = event.shiftKey && event.key.length > 1 ? "Shift+" : "";
  return steering + shift + (event.key === " " ? "Space" : event.key);
}

/** Text is being typed: letters are text. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  if (target.isContentEditable || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement)
    return true;
  return target instanceof HTMLInputElement && !["checkbox", "radio", "range", "button"].includes(target.type);
}

/** Keys that an element itself knows what to do with. */
function belongsToElement(event: KeyboardEvent, name: string): boolean {
  const target = event.target;
  if (!(target instanceof HTMLElement)) return false;
  if (name === "Enter" || name === "Space") return target.closest("button, a[href], summary, input, select") !== null;
  return target instanceof HTMLInputElement && target.type === "range" && name.startsWith("Arrow");
}

export function handleKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || event.altKey) return;
  const name = keyName(event);
  if (isTyping(event.target) && !name.startsWith("Ctrl+") && name !== "Escape") return;
  if (modal.peek() > 0 || belongsToElement(event, name)) return;
  const command = commands.peek().find((entry) => entry.keys?.includes(name) && (entry.when?.() ?? true));
  if (!command) return;
  event.preventDefault();
  command.run(event);
}
