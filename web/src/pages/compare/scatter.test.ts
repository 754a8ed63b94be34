import { expect, it } from "vitest";
import type { Figure, RunMetrics } from "../../data/types";
import { buildScatter } from "./scatter";

const run = (id: string, settings: Record<string, unknown>, last: Figure): RunMetrics => ({
  id,
  settings,
  axes: ["step"],
  metrics: [
    {
      key: "loss",
      goal: "min",
      rows: 1,
      last,
      last_step: 1,
      best: null,
      best_step: null,
      low: null,
      high: null,
      constant: false,
      held_out_of: null,
    },
  ],
});

it("makes one group of runs that differ only in their seed", () => {
  const runs = [
    run("a", { lr: 1, seed: 1 }, 2),
    run("b", { lr: 1, seed: 2 }, 4),
    run("c", { lr: 2, seed: 1 }, 5),
    run("d", { lr: 1, seed: 3, d: 1 }, 9),
  ];
  const { groups } = buildScatter(runs, "lr", "loss", "last");
  expect(groups.map(({ x, runs: members, mean }) => [x, members.join(), mean])).toEqual([
    [1, "a,b", 3],
    [2, "c", 5],
    [1, "d", 9],
  ]);
  expect(groups[0]?.spread).toBeCloseTo(Math.SQRT2, 12);
  expect(groups[1]?.spread).toBeNull();
});

it("keeps seeds apart where the seed is what is drawn against", () => {
  const runs = [run("a", { seed: 1 }, 2), run("b", { seed: 2 }, 4)];
  expect(buildScatter(runs, "seed", "loss", "last").groups).toHaveLength(2);
});

it("counts what cannot be drawn", () => {
  const scatter = buildScatter(
    [run("a", { lr: 1 }, "nan"), run("b", {}, 2), run("c", { lr: 1 }, null)],
    "lr",
    "loss",
    "last",
  );
  expect(scatter.diverged).toEqual([{ x: 1, run: "a" }]);
  expect(scatter.without).toBe(2);
});
