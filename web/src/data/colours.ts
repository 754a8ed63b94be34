/** Which colour each run gets: its own, unless another run beside it has that already. */

export const COLOURS = 12;

/**
 * Colours of the runs that are shown together, as few of them alike as can be.
 *
 * - `ownOf`: the colour that a run has by its id.
 * - `before`: what runs had until now; a run that is still shown keeps it.
 */
export function assignColours(
  shown: readonly string[],
  ownOf: (run: string) => number,
  before: ReadonlyMap<string, number>,
): Map<string, number> {
  const assigned = new Map<string, number>();
  const uses = new Array<number>(COLOURS).fill(0);
  const take = (run: string, colour: number) => {
    assigned.set(run, colour);
    uses[colour] = (uses[colour] ?? 0) + 1;
  };
  for (const run of shown) {
    const kept = before.get(run);
    if (kept !== undefined) take(run, kept);
  }
  for (const run of shown) {
    if (assigned.has(run)) continue;
    const least = Math.min(...uses);
    let colour = ownOf(run) % COLOURS;
    while ((uses[colour] ?? 0) > least) colour = (colour + 1) % COLOURS;
    take(run, colour);
  }
  return assigned;
}
