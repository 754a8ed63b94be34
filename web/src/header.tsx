/** The line at the top: where one is, the pages, what the page lets one set, theme, help, command palette. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { link, page } from "./address";
import { board, changes, chosenTheme, shown, theme } from "./data/state";
import { openHelp } from "./help";
import { commandKey } from "./keys";
import { openPalette } from "./palette";
import { openSheet } from "./side/state";
import "./header.css";

export const PAGES = {
  runs: "Runs",
  charts: "Charts",
  compare: "Compare",
  samples: "Samples",
  checkpoints: "Checkpoints",
  machine: "Machine",
} as const;

const controls = signal<ComponentChildren>(null);

/** Puts what a page lets one set into the header, on the right: the axis, smoothing. Null takes it out. */
export function showInHeader(children: ComponentChildren): void {
  controls.value = children;
}

/** The other theme; the system's own is not chosen but followed. */
export function switchTheme(): void {
  chosenTheme.value = theme.value === "dark" ? "light" : "dark";
}

export function Header({ hasSide }: { hasSide: boolean }) {
  return (
    <header class="header">
      {hasSide && (
        <button
          type="button"
          class="sign only-narrow"
          aria-label={`${shown.value.length} runs shown`}
          onClick={openSheet}
        >
          <span aria-hidden="true">☰</span>
          <span class="badge">{shown.value.length}</span>
        </button>
      )}
      <a class="mark" href={link("/runs")} aria-label="linnet, all runs">
        linnet
      </a>
      <span class="root clip" title={board.value?.root}>
        {board.value?.root}
      </span>
      <nav aria-label="Pages">
        {Object.entries(PAGES).map(([name, title]) => (
          <a key={name} href={link(`/${name}`)} aria-current={isCurrent(name) ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <span class="grow" />
      <Connection />
      <div class="controls">{controls.value}</div>
      <div class="signs">
        <button
          type="button"
          class="sign"
          aria-label={theme.value === "dark" ? "Light theme" : "Dark theme"}
          title="Light or dark (t)"
          onClick={switchTheme}
        >
          <span aria-hidden="true">{theme.value === "dark" ? "☀" : "☾"}</span>
        </button>
        <button type="button" class="sign only-wide" aria-label="Keys and help" title="Keys (?)" onClick={openHelp}>
          <span aria-hidden="true">?</span>
        </button>
        <button type="button" class="palette-sign" title="Every command and every run" onClick={openPalette}>
          <kbd>{commandKey}K</kbd>
          <span class="unseen">: command palette</span>
        </button>
      </div>
    </header>
  );
}

function isCurrent(name: string): boolean {
  return page.value === name || (page.value === "run" && name === "runs");
}

/** Said only when it matters: the server went away. */
function Connection() {
  if (changes.connection.value !== "lost") return null;
  return (
    <span class="lost" role="status" title="Started again, the board goes on by itself: linnet board --web">
      the server is gone · trying again
    </span>
  );
}
