import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef } from "preact/hooks";
import { modal } from "../keys";
import "./dialog.css";

export interface DialogProps {
  title: string;
  children: ComponentChildren;
  /** Buttons at the foot, the one that does it last. */
  actions?: ComponentChildren;
  /** `sheet`: from the side of the screen; `wide`: for tables and pictures. */
  kind?: "box" | "wide" | "sheet" | "palette";
  onClose(): void;
}

/** A modal dialog: the browser's own, which keeps the focus inside and gives it back. */
export function Dialog({ title, children, actions, kind = "box", onClose }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  const heading = useId();
  // Before anything is painted: what is typed at once belongs to the dialog, and not to the keys of the page.
  useLayoutEffect(() => {
    const dialog = element.current;
    const before = document.activeElement;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>(".dialog-content")?.focus(); // and not the button that closes it
    modal.value++;
    return () => {
      modal.value--;
      dialog?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class={`dialog ${kind}`}
      aria-labelledby={heading}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === event.currentTarget && onClose()}
    >
      <div class="dialog-body">
        <header>
          <h2 id={heading}>{title}</h2>
          <button type="button" class="dialog-close" aria-label="Close" onClick={onClose}>
            ×
          </button>
        </header>
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what is longer than the dialog is scrolled by keys */}
        <div class="dialog-content" tabIndex={0}>
          {children}
        </div>
        {actions && <footer>{actions}</footer>}
      </div>
    </dialog>
  );
}
