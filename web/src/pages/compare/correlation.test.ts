import { expect, it } from "vitest";
import { correlations, rankInterval, ranks, spearman } from "./correlation";

const of = (columns: Record<string, unknown[]>, results: (number | null)[]) =>
  correlations(Object.keys(columns), (run, name) => columns[name]?.[run], results);

it("shares the mean rank among equal values", () => {
  expect(ranks([10, 20, 20, 5])).toEqual([2, 3.5, 3.5, 1]);
});

it("is Spearman's rho, as scipy.stats.spearmanr gives it", () => {
  expect(spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7])).toBeCloseTo(0.8207826816681233, 12);
  expect(spearman([1, 2, 3, 4], [1, 8, 27, 64])).toBe(1);
  expect(spearman([1, 1, 1], [1, 2, 3])).toBeNull();
});

it("claims nothing from three runs, nor from four", () => {
  for (const runs of [3, 4]) {
    const [row] = of({ lr: [1, 2, 3, 4].slice(0, runs) }, [1, 2, 3, 4].slice(0, runs));
    expect(row).toMatchObject({ runs, strength: null, interval: null, verdict: "too few runs" });
  }
});

it("says what could be chance", () => {
  const [likely] = of({ lr: [1, 2, 3, 4, 5, 6, 7, 8] }, [8, 7, 6, 5, 4, 3, 2, 1]);
  expect(likely).toMatchObject({ strength: -1, verdict: "likely" });
  const [chance] = of({ lr: [1, 2, 3, 4, 5, 6] }, [2, 1, 4, 3, 1.5, 5]);
  expect(chance?.verdict).toBe("could be chance");
  expect(chance?.interval?.[0]).toBeLessThan(0);
});

it("takes two words as a step and more as groups without a sign", () => {
  const results = [1, 1.1, 1.2, 5, 5.1, 5.2];
  const [two] = of({ optimizer: ["adamw", "adamw", "adamw", "muon", "muon", "muon"] }, results);
  expect(two).toMatchObject({ signed: true, values: 2, verdict: "likely" });
  const [three] = of({ recipe: ["a", "a", "b", "b", "c", "c"] }, results);
  expect(three?.signed).toBe(false);
  expect(three?.strength).toBeGreaterThan(0.5);
});

it("leaves out settings that never change, and runs without a result", () => {
  expect(of({ seed: [1, 1, 1, 1, 1] }, [1, 2, 3, 4, 5])).toEqual([]);
  expect(of({ lr: [1, 2, 3, 4, 5, 6] }, [1, 2, null, Number.NaN, 3, 4])[0]?.runs).toBe(4);
});

it("narrows with the number of runs", () => {
  const width = (runs: number) => rankInterval(0.5, runs)[1] - rankInterval(0.5, runs)[0];
  expect(width(50)).toBeLessThan(width(10));
});
