/** What lies above the canvas and moves with the pointer: cursor line, dots, selection, tooltip. No render, no garbage. */
import type { Box } from "./geometry";

/** One line of a tooltip. */
export interface TipRow {
  readonly colour: string;
  readonly dashed: boolean;
  readonly label: string;
  readonly value: string;
  /** In small letters behind the value: the range of a column, another step. */
  readonly note: string;
  readonly strong: boolean;
}

export interface Tip {
  readonly title: string;
  readonly rows: readonly TipRow[];
  /** Below the rows: how many more, warnings at this place. */
  readonly notes: readonly { readonly text: string; readonly warning: boolean }[];
}

const TIP_GAP = 14; // pixels from the cursor

export class Overlay {
  readonly #host: HTMLElement;
  readonly #line: HTMLElement;
  readonly #selection: HTMLElement;
  readonly #tip: HTMLElement;
  readonly #title: HTMLElement;
  readonly #rows: HTMLElement;
  readonly #notes: HTMLElement;
  readonly #dots: HTMLElement[] = [];

  constructor(host: HTMLElement) {
    this.#host = host;
    this.#line = part(host, "chart-cursor");
    this.#selection = part(host, "chart-selection");
    this.#tip = part(host, "chart-tip");
    this.#title = part(this.#tip, "chart-tip-title");
    this.#rows = part(this.#tip, "chart-tip-rows");
    this.#notes = part(this.#tip, "chart-tip-notes");
    // Values are read from the table behind the chart; the tooltip would only chatter.
    for (const element of [this.#line, this.#selection, this.#tip]) {
      element.setAttribute("aria-hidden", "true");
      element.hidden = true;
    }
  }

  /** The dashed line at a place; null: none. */
  showCursor(x: number | null, box: Box): void {
    hide(this.#line, x === null);
    if (x === null) return;
    this.#line.style.transform = `translate(${Math.round(x)}px, ${box.top}px)`;
    this.#line.style.height = `${box.height}px`;
  }

  showDots(points: readonly { x: number; y: number; colour: string }[]): void {
    for (let at = 0; at < Math.max(points.length, this.#dots.length); at++) {
      const point = points[at];
      let dot = this.#dots[at];
      if (!dot) {
        dot = part(this.#host, "chart-dot");
        dot.setAttribute("aria-hidden", "true");
        this.#dots.push(dot);
      }
      hide(dot, !point);
      if (!point) continue;
      dot.style.transform = `translate(${point.x.toFixed(1)}px, ${point.y.toFixed(1)}px)`;
      dot.style.setProperty("--run", point.colour);
    }
  }

  showSelection(stretch: { from: number; to: number } | null, box: Box): void {
    hide(this.#selection, stretch === null);
    if (!stretch) return;
    const left = box.left + Math.min(stretch.from, stretch.to) * box.width;
    this.#selection.style.transform = `translate(${left}px, ${box.top}px)`;
    this.#selection.style.width = `${Math.abs(stretch.to - stretch.from) * box.width}px`;
    this.#selection.style.height = `${box.height}px`;
  }

  /** `x`: of the cursor; `y`: of the pointer. The tip stands on the side that has room. */
  showTip(tip: Tip | null, x: number, y: number, box: Box): void {
    hide(this.#tip, tip === null);
    if (!tip) return;
    this.#title.textContent = tip.title;
    fill(this.#rows, tip.rows.length, newRow, (element, at) => fillRow(element, tip.rows[at]));
    fill(this.#notes, tip.notes.length, newNote, (element, at) => {
      const note = tip.notes[at];
      element.textContent = note?.text ?? "";
      element.classList.toggle("warn", note?.warning ?? false);
    });
    const { offsetWidth: width, offsetHeight: height } = this.#tip;
    const left = tipLeft(x, width, this.#room());
    const top = Math.max(-4, Math.min(y - height / 2, box.top + box.height - height + 8));
    this.#tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  /** How far the page reaches to either side, from the chart's left edge. Beyond it a tip would be cut off. */
  #room(): Room {
    const page = this.#host.closest(".page") ?? document.documentElement;
    const { left, right } = page.getBoundingClientRect();
    const start = this.#host.getBoundingClientRect().left;
    return { from: left - start, to: right - start };
  }
}

export interface Room {
  readonly from: number;
  readonly to: number;
}

/** Where a tip begins: right of the cursor, else left of it, else wherever it is whole. */
export function tipLeft(x: number, width: number, room: Room): number {
  if (x + TIP_GAP + width <= room.to) return x + TIP_GAP;
  return Math.max(room.from, Math.min(x - TIP_GAP, room.to) - width);
}

function part(parent: HTMLElement, name: string, tag = "div"): HTMLElement {
  const element = document.createElement(tag);
  element.className = name;
  parent.append(element);
  return element;
}

/** An attribute that is set to what it is costs a look at all styles. */
function hide(element: HTMLElement, hidden: boolean): void {
  if (element.hidden !== hidden) element.hidden = hidden;
}

/** Elements are kept and filled anew. */
function fill(
  parent: HTMLElement,
  amount: number,
  make: () => HTMLElement,
  set: (element: HTMLElement, at: number) => void,
): void {
  while (parent.children.length < amount) parent.append(make());
  while (parent.children.length > amount) parent.lastElementChild?.remove();
  for (let at = 0; at < amount; at++) {
    const element = parent.children[at];
    if (element instanceof HTMLElement) set(element, at);
  }
}

function newRow(): HTMLElement {
  const row = document.createElement("div");
  part(row, "chart-tip-dot", "i");
  part(row, "chart-tip-label", "span");
  part(row, "chart-tip-value", "b");
  part(row, "chart-tip-note", "small");
  return row;
}

function newNote(): HTMLElement {
  return document.createElement("p");
}

function fillRow(element: HTMLElement, row: TipRow | undefined): void {
  const [dot, label, value, note] = element.children;
  if (!row || !(dot instanceof HTMLElement) || !label || !value || !note) return;
  dot.style.setProperty("--run", row.colour);
  dot.classList.toggle("dashed", row.dashed);
  label.textContent = row.label;
  value.textContent = row.value;
  note.textContent = row.note;
  element.className = row.strong ? "chart-tip-row strong" : "chart-tip-row";
}
