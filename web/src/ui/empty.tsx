import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
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
  const [copied, setCopied] = useState(false);
  async function copy(): Promise<void> {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  }
  return (
    <div class="command-line">
      <code>{text}</code>
      <button type="button" aria-label={`Copy: ${text}`} onClick={() => void copy()}>
        {copied ? "copied" : "copy"}
      </button>
    </div>
  );
}
