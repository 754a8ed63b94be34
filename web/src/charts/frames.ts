/** One loop of frames for all charts: each that asked is drawn in the next frame, and painting shares one budget. */
export interface Drawn {
  /** Draws; true where it has more to do in the next frame. */
  frame(deadline: number): boolean;
}

const BUDGET = 9; // milliseconds of a frame for painting while somebody drags
const HANDS_ON = 250; // milliseconds after the last move of a hand

const waiting = new Set<Drawn>();
let scheduled = 0;
let lastMove = Number.NEGATIVE_INFINITY;
let settled: (() => void)[] = [];
let isWaiting = false; // for the hand to rest

/** Draw it in the next frame. */
export function requestFrame(drawn: Drawn): void {
  waiting.add(drawn);
  if (!scheduled) scheduled = requestAnimationFrame(run);
}

export function cancelFrame(drawn: Drawn): void {
  waiting.delete(drawn);
}

/** Somebody drags, turns the wheel or pinches: frames are kept short for a while. `after`: called when that ended. */
export function handsOn(after?: () => void): void {
  lastMove = performance.now();
  if (after && !settled.includes(after)) settled.push(after);
  if (!isWaiting) setTimeout(lookWhetherSettled, HANDS_ON);
  isWaiting = true;
}

function lookWhetherSettled(): void {
  const left = lastMove + HANDS_ON - performance.now();
  if (left > 1) {
    setTimeout(lookWhetherSettled, left);
    return;
  }
  isWaiting = false;
  lastMove = Number.NEGATIVE_INFINITY;
  const callbacks = settled;
  settled = [];
  for (const callback of callbacks) callback();
}

export function isHandsOn(): boolean {
  return performance.now() - lastMove < HANDS_ON;
}

function run(): void {
  scheduled = 0;
  const deadline = isHandsOn() ? performance.now() + BUDGET : Number.POSITIVE_INFINITY;
  const batch = [...waiting];
  waiting.clear();
  for (const drawn of batch) if (drawn.frame(deadline)) waiting.add(drawn);
  // Those that waited come first in the next frame, so that each gets its turn.
  if (waiting.size && !scheduled) scheduled = requestAnimationFrame(run);
}
