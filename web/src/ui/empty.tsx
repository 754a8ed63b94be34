import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import "./empty.css";

/** In place of what is not there: why, and what to do. */
export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A command to type, with a button that copies it. */
export function CommandLine({ text }: { text: string }) {
  const [said, setSaid] = useState("copy");
  const line = useRef<HTMLElement>(null);
  async function copy(): Promise<void> {
    setSaid((await copyText(text, line.current)) ? "copied" : "selected");
    setTimeout(() => setSaid("copy"), 1500);
  }
  return (
    <div class="command-line">
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a line that scrolls must be reached by the keyboard */}
      <code ref={line} tabIndex={0}>
        {text}
      </code>
      <button type="button" aria-label={`${said}: ${text}`} onClick={() => void copy()}>
        <span aria-live="polite">{said}</span>
      </button>
    </div>
  );
}

/** Puts a text on the clipboard; where the page has no access to it (plain HTTP), selects it and tries the old way. */
async function copyText(text: string, shown: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    if (shown) getSelection()?.selectAllChildren(shown);
    return document.execCommand("copy");
  }
}
