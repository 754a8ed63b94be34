import { describe, expect, test } from "vitest";
import { type Column, parseColumn, Query, type Value } from "./query";
import cases from "./query-cases.json";

const ALIASES: Record<string, string> = { id: "run", tag: "tags", seconds: "time" };

function typed({ name, statistic, step }: Column): string {
  if (step !== null) return `${name}@${step}`;
  return statistic === null ? name : `${statistic}(${name})`;
}

function valuesOf(run: Record<string, unknown>): (column: Column) => Value {
  return (column) => run[ALIASES[typed(column)] ?? typed(column)] as Value;
}

describe("a filter means in a report what it means to the server", () => {
  test.each(cases.cases)("$where", ({ where, fits }) => {
    if (fits === null) expect(() => new Query(where)).toThrow("filter '");
    else expect(cases.runs.map((run) => new Query(where).fits(valuesOf(run)))).toEqual(fits);
  });
});

test("columns are read as they are typed", () => {
  expect(parseColumn(" best(validation/loss) ")).toEqual({ name: "validation/loss", statistic: "best", step: null });
  expect(parseColumn("loss@200")).toEqual({ name: "loss", statistic: null, step: 200 });
  expect(parseColumn('"a(b)"')).toEqual({ name: "a(b)", statistic: null, step: null });
  expect(() => parseColumn("mean(loss)")).toThrow("mean() of a metric does not exist");
});

test("parentheses without end are refused, and not the end of the page", () => {
  expect(() => new Query("(".repeat(10_000))).toThrow("within each other");
});
