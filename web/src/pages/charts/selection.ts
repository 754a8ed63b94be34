/** The chart that keys act on: the one with the focus, else the one under the pointer. */
import type { ChartSurface } from "../../charts/surface";

/** The charts on the page, by metric. */
export const surfaces = new Map<string, ChartSurface>();

function cells(): HTMLElement[] {
  return [...document.querySelectorAll<HTMLElement>(".chart-cell")];
}

export function selectedKey(): string | null {
  const cell =
    document.activeElement?.closest<HTMLElement>(".chart-cell") ??
    document.querySelector<HTMLElement>(".chart-cell:hover");
  return cell?.dataset.key ?? null;
}

export function selectedSurface(): ChartSurface | null {
  const key = selectedKey() ?? cells()[0]?.dataset.key;
  return (key !== undefined && surfaces.get(key)) || null;
}

export function focusChart(key: string): void {
  cells()
    .find((cell) => cell.dataset.key === key)
    ?.focus();
}

let awaited: string | null = null; // the chart that had the focus, and will be drawn in another place

/** The focus goes to this chart when it stands in its next place: where it has moved to, or behind one on the whole page. */
export function awaitChart(key: string | null): void {
  awaited = key;
}

/** Gives an awaited chart the focus, unless something else took it. */
export function welcomeChart(key: string, cell: HTMLElement): void {
  if (awaited !== key) return;
  awaited = null;
  if (document.activeElement === null || document.activeElement === document.body) cell.focus();
}

/** The n-th chart of the page, from 1. */
export function chartNumber(n: number): string | null {
  return cells()[n - 1]?.dataset.key ?? null;
}

/** Brings the section before, or the next, to the top and selects its first chart. */
export function moveSection(by: number): void {
  const sections = [...document.querySelectorAll<HTMLElement>(".chart-section")];
  const now = document.activeElement?.closest<HTMLElement>(".chart-section");
  const next = sections[Math.max(0, now ? sections.indexOf(now) + by : 0)];
  next?.scrollIntoView({ block: "start" });
  (next?.querySelector<HTMLElement>(".chart-cell") ?? next?.querySelector<HTMLElement>("button"))?.focus({
    preventScroll: true,
  });
}

/** Moves the focus to the next chart in a direction, as they stand on the screen. */
export function moveSelection(direction: "left" | "right" | "up" | "down"): void {
  const all = cells();
  const now = document.activeElement?.closest<HTMLElement>(".chart-cell");
  if (!now) {
    all[0]?.focus();
    return;
  }
  const from = now.getBoundingClientRect();
  let nearest: HTMLElement | null = null;
  let least = Number.POSITIVE_INFINITY;
  for (const cell of all) {
    if (cell === now) continue;
    const to = cell.getBoundingClientRect();
    const [along, beside] =
      direction === "left"
        ? [from.left - to.right, to.top - from.top]
        : direction === "right"
          ? [to.left - from.right, to.top - from.top]
          : direction === "up"
            ? [from.top - to.bottom, to.left - from.left]
            : [to.top - from.bottom, to.left - from.left];
    const distance = along + 2 * Math.abs(beside);
    if (along >= -4 && distance < least) {
      least = distance;
      nearest = cell;
    }
  }
  nearest?.focus();
  nearest?.scrollIntoView({ block: "nearest" });
}
