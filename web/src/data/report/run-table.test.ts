import { expect, test } from "vitest";
import type { TableQuery } from "../source";
import type { MetricInfo, RunRow } from "../types";
import type { Contents, RunPart } from "./contents";
import { HeldTable, type RowValue } from "./run-table";

interface Made {
  id: string;
  loss: number | "nan" | null;
  lr?: number;
  acc?: number;
  row?: Partial<RunRow>;
  settings?: Record<string, unknown>;
}

function part({ id, loss, lr = 0.001, acc, row, settings }: Made, at: number): RunPart {
  const metrics: Partial<MetricInfo>[] = [{ key: "loss", goal: "min", last: loss, best: loss, low: loss, high: loss }];
  if (acc !== undefined) metrics.push({ key: "acc", goal: "max", last: acc, best: acc, low: acc, high: acc });
  const whole = {
    id,
    name: id,
    status: "completed",
    step: 100,
    metric: "loss",
    last: loss,
    age: 10 * at,
    created: 1000,
    seconds: 60,
    recipe: "from-scratch",
    experiment: null,
    group: null,
    parent: null,
    compare_to: null,
    tags: [],
    ...row,
  };
  const detail = { row: whole, manifest: {}, settings: { "config.lr": lr, ...settings }, metrics };
  return { id, detail, curve: null, series: [] } as unknown as RunPart;
}

const BASE: Made[] = [
  { id: "a", loss: 2, lr: 0.001, acc: 0.5 },
  { id: "b", loss: 1, lr: 0.01, acc: 0.7, row: { tags: ["wide"], status: "live" } },
  { id: "c", loss: "nan", lr: 0.01, acc: 0.9 },
  { id: "d", loss: null, lr: 0.1 },
];

function tableOf(made: readonly Made[] = BASE, held: RowValue = () => 3): HeldTable {
  const table = { columns: [{ term: "config.lr" }], settings: ["config.lr"], metrics: ["loss"] };
  return new HeldTable({ runs: made.map(part), table } as unknown as Contents, held);
}

function query(changes: Partial<TableQuery> = {}): TableQuery {
  return { where: "", columns: [], sort: "", reverse: false, group: "", hidden: false, ...changes };
}

const ids = (made: HeldTable, changes: Partial<TableQuery>) => made.answer(query(changes)).rows.map(({ id }) => id);

test("without a question: the youngest first, with the settings that differ", () => {
  const answer = tableOf().answer(query());
  expect(answer.rows.map(({ id, values }) => [id, ...values])).toEqual([
    ["a", 0.001],
    ["b", 0.01],
    ["c", 0.01],
    ["d", 0.1],
  ]);
  expect(answer.columns).toEqual([{ term: "config.lr", label: "lr", kind: "setting", goal: null, numeric: true }]);
  expect(answer.problem).toBeNull();
});

test.each([
  [{ sort: "loss" }, ["b", "a", "c", "d"]], // the best first, what has no number last
  [{ sort: "loss", reverse: true }, ["a", "b", "c", "d"]],
  [{ sort: "best(acc)" }, ["c", "b", "a", "d"]],
  [{ sort: "lr", reverse: true }, ["d", "b", "c", "a"]],
  [{ sort: "run", reverse: true }, ["d", "c", "b", "a"]],
  [{ sort: "status" }, ["b", "a", "c", "d"]],
  [{ sort: "nonsense" }, ["a", "b", "c", "d"]],
  [{ where: "lr>=0.01 and not loss<5" }, ["c", "d"]],
  [{ where: "tag:wi" }, ["b"]],
  [{ where: "max(acc)>0.6", sort: "acc" }, ["c", "b"]],
])("%j", (changes, expected) => {
  expect(ids(tableOf(), changes)).toEqual(expected);
});

test("groups stand side by side, each with its best", () => {
  const { groups, rows } = tableOf().answer(query({ group: "lr" }));
  expect(rows.map(({ id }) => id)).toEqual(["a", "b", "c", "d"]);
  expect(groups).toEqual([
    { key: "0.001", first: 0, count: 1, live: 0, best: 2 },
    { key: "0.01", first: 1, count: 2, live: 1, best: 1 },
    { key: "0.1", first: 3, count: 1, live: 0, best: null },
  ]);
});

test("a filter that means nothing hides nothing and says why", () => {
  const answer = tableOf().answer(query({ where: "loss<" }));
  expect(answer.rows).toHaveLength(4);
  expect(answer.problem).toContain("expected a value after '<'");
  expect(tableOf().answer(query({ where: "lose<2" })).problem).toContain("no run here has a setting or metric 'lose'");
  expect(tableOf().answer(query({ where: "best(los)<2" })).problem).toContain("setting or metric 'los'");
});

test("a single row of a run is a column where the report holds it", () => {
  expect(tableOf().answer(query({ columns: ["loss@50"] })).rows[0]?.values).toEqual([3]);
  const long = tableOf(BASE, () => undefined).answer(query({ columns: ["first(loss)"] }));
  expect(long.problem).toContain("first(loss) is one row of a long run");
  expect(long.rows).toHaveLength(4);
});

test("names hold any letter", () => {
  const name = `config.a"'b <i>`;
  const made = tableOf([{ id: "a", loss: 1, settings: { [name]: "x" } }]);
  const term = `"${name}"`;
  expect(made.answer(query({ columns: [term] })).rows[0]?.values).toEqual(["x"]);
  expect(made.answer(query({ group: term })).groups[0]?.key).toBe("x");
});

test("two columns with one label are called by their whole names", () => {
  const made = tableOf([{ id: "a", loss: 1, settings: { "model.lr": 2 } }]);
  expect(made.answer(query({ columns: ["lr", "model.lr"] })).columns.map(({ label }) => label)).toEqual([
    "config.lr",
    "model.lr",
  ]);
  const unsure = tableOf([{ id: "a", loss: 1, settings: { "x.width": 1, "y.width": 2 } }]);
  expect(unsure.answer(query({ columns: ["width"] })).problem).toContain("could be any of x.width, y.width");
});
