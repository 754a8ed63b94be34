/** Whether the list of runs beside a page is seen: on a phone as a sheet, else as a column that can be folded away. */
import { signal } from "@preact/signals";
import { remember, remembered } from "../data/state";

const KEY = "linnet.side";
export const sheetOpen = signal(false);
export const folded = signal(remembered(KEY) === "folded");

export function openSheet(): void {
  sheetOpen.value = true;
}

export function toggleSide(): void {
  folded.value = !folded.value;
  remember(KEY, folded.value ? "folded" : null);
}
