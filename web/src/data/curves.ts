/** Sparklines and best values: they need whole streams, and are asked for only of rows that are on the screen. */
import { signal } from "@preact/signals";
import { known, source } from "./state";
import type { RowCurve } from "./types";

const WAIT = 60; // milliseconds: a scroll passes many rows
const FRESH = 4000; // a live run's curve is looked at again after so long
const FIRST_PART = 24; // rows of the first of several questions: the screen fills from the top

interface Kept {
  curve: RowCurve;
  at: number; // performance.now()
  step: number | null;
}

const kept = new Map<string, Kept>();
const asked = new Set<string>();
let wanted: readonly string[] = [];
let isWaiting = false;
const version = signal(0);

/** The curve of a run as far as it is known; whoever reads it is drawn again when it comes. */
export function curveOf(id: string): RowCurve | undefined {
  version.value;
  return kept.get(id)?.curve;
}

/** These rows are on the screen. */
export function wantCurves(ids: readonly string[]): void {
  wanted = ids;
  if (isWaiting) return;
  isWaiting = true;
  setTimeout(() => {
    isWaiting = false;
    void load();
  }, WAIT);
}

function isDue(id: string): boolean {
  if (asked.has(id)) return false;
  const entry = kept.get(id);
  if (!entry) return true;
  const row = known.peek().get(id);
  return row !== undefined && row.step !== entry.step && performance.now() - entry.at > FRESH;
}

async function load(): Promise<void> {
  const ids = wanted.filter(isDue);
  await Promise.all([part(ids.slice(0, FIRST_PART)), part(ids.slice(FIRST_PART))]);
}

async function part(ids: readonly string[]): Promise<void> {
  if (!ids.length) return;
  for (const id of ids) asked.add(id);
  const steps = new Map(ids.map((id) => [id, known.peek().get(id)?.step ?? null]));
  try {
    const at = performance.now();
    for (const curve of await source().curves(ids)) {
      kept.set(curve.id, { curve, at, step: steps.get(curve.id) ?? null });
    }
    version.value++;
  } catch {
    // the header says that the server is gone; rows on the screen ask again
  } finally {
    for (const id of ids) asked.delete(id);
  }
}
