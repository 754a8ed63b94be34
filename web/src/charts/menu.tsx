import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "./menu.css";

export interface MenuItem {
  readonly text: string;
  /** The key that does the same. */
  readonly hint?: string;
  readonly checked?: boolean;
  run(): void;
}

/** A button with a list of things to do. `groups` are set apart by a line. */
export function Menu({
  label,
  children,
  groups,
}: {
  label: string;
  children: ComponentChildren;
  groups: readonly (readonly MenuItem[])[];
}) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const close = (event: Event) => {
      if (!(event.target instanceof Node && root.current?.contains(event.target))) setOpen(false);
    };
    root.current?.querySelector<HTMLElement>('[role^="menuitem"]')?.focus();
    addEventListener("pointerdown", close);
    return () => removeEventListener("pointerdown", close);
  }, [open]);

  function key(event: KeyboardEvent): void {
    if (!open) return;
    const items = [...(root.current?.querySelectorAll<HTMLElement>('[role^="menuitem"]') ?? [])];
    const at = items.findIndex((item) => item.matches(":focus"));
    const to: Record<string, number> = {
      ArrowDown: (at + 1) % items.length,
      ArrowUp: (at - 1 + items.length) % items.length,
      Home: 0,
      End: items.length - 1,
    };
    const next = to[event.key];
    if (event.key === "Escape" || event.key === "Tab") {
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    } else if (next !== undefined) items[next]?.focus();
    if (event.key !== "Tab" && event.key !== "Enter" && event.key !== " ") event.preventDefault();
    event.stopPropagation();
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: keys of the button and the list, wherever the focus is
    <div class="menu" ref={root} onKeyDown={key}>
      <button
        type="button"
        class="icon-button"
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-expanded={open}
        onClick={() => setOpen(!open)}
      >
        {children}
      </button>
      {open && (
        <div class="menu-items" role="menu" aria-label={label}>
          {groups.map((group, index) => (
            <div key={index} class="menu-group">
              {group.map(({ text, hint, checked, run }) => (
                // biome-ignore lint/a11y/useAriaPropsSupportedByRole: only an entry that is checked or not says so
                <button
                  key={text}
                  type="button"
                  tabIndex={-1}
                  role={checked === undefined ? "menuitem" : "menuitemcheckbox"}
                  aria-checked={checked}
                  onClick={() => {
                    setOpen(false);
                    run();
                  }}
                >
                  <span>{text}</span>
                  {hint && <kbd>{hint}</kbd>}
                </button>
              ))}
            </div>
          ))}
        </div>
      )}
    </div>
  );
}
