/** The table of a report's runs: filtered, sorted and grouped in the page as the server does it. */
import { asNumber, duration, moment, number } from "../../words";
import type { TableQuery } from "../source";
import type { ColumnInfo, Goal, MetricInfo, RunRow, RunTable } from "../types";
import type { Contents, RunPart } from "./contents";
import { type Column, FIELDS, parseColumn, Query, type Statistic, type Value } from "./query";

/** A column whose meaning is known. */
interface Term {
  kind: ColumnInfo["kind"];
  name: string;
  statistic: Statistic;
  step: number | null;
}
type SortKey = readonly [rank: number, amount: number, text: string] | null;

const STATUSES = ["live", "completed", "interrupted", "aborted", "errored", "crashed", "stalled", "gone"];
const LEFT = new Set(["run", "name", "status", "recipe", "experiment", "group", "parent", "tags", "writer"]);
const PREFERRED = ["config.", "model."];
const ABSENT = "–";

const SORTS: Readonly<Record<string, (run: RunPart) => Value>> = {
  age: ({ detail }) => detail.row.age,
  run: ({ detail }) => detail.row.id,
  status: ({ detail }) => STATUSES.indexOf(detail.row.status),
  recipe: ({ detail }) => detail.row.recipe,
  experiment: ({ detail }) => detail.row.experiment,
  group: ({ detail }) => detail.row.group,
  tags: ({ detail }) => detail.row.tags.join(" "),
  step: ({ detail }) => detail.row.step,
  last: ({ detail }) => finite(asNumber(detail.row.last)),
  best: ({ curve }) => (curve ? finite(asNumber(curve.best)) : null),
};

/** The value of a metric at a step, or of its first row for null; undefined where the report does not hold that row. */
export type RowValue = (run: RunPart, key: string, step: number | null) => number | null | undefined;

export class HeldTable {
  readonly #contents: Contents;
  readonly #rowValue: RowValue;
  readonly #runs: readonly RunPart[];
  readonly #settings: readonly string[];
  readonly #metrics = new Map<string, Map<string, MetricInfo>>();
  /** Settings by the words that mean nothing else: a name may hold any letter. */
  readonly #typed = new Map<string, Term>();

  constructor(contents: Contents, rowValue: RowValue) {
    this.#contents = contents;
    this.#rowValue = rowValue;
    this.#runs = contents.runs;
    this.#settings = [...new Set(contents.runs.flatMap(({ detail }) => Object.keys(detail.settings)))];
    for (const { id, detail } of contents.runs) {
      this.#metrics.set(id, new Map(detail.metrics.map((metric) => [metric.key, metric])));
    }
    for (const name of this.#settings) {
      const term: Term = { kind: "setting", name, statistic: "last", step: null };
      this.#typed.set(typedOf(term), term);
    }
  }

  answer(query: TableQuery): RunTable {
    const problems: string[] = [];
    const attempt = <T>(prefix: string, make: () => T, otherwise: T): T => {
      try {
        return make();
      } catch (error) {
        problems.push(`${prefix}${error instanceof Error ? error.message : String(error)}`);
        return otherwise;
      }
    };
    const filtered = attempt("", () => this.#filtered(query.where), this.#runs);
    const sorted = this.#sorted(filtered, query.sort || "age", query.reverse);
    const asked = query.columns.length ? query.columns : this.#contents.table.columns.map(({ term }) => term);
    const terms = attempt("columns: ", () => asked.map((typed) => this.#meaning(typed)), []);
    const [groups, ordered] = attempt("group: ", () => this.#grouped(sorted, query.group), [[], sorted]);
    return {
      ...this.#contents.table,
      total: this.#runs.length,
      columns: this.#described(terms),
      rows: ordered.map((run) => ({ ...run.detail.row, values: terms.map((term) => cellOf(this.#value(run, term))) })),
      groups,
      problem: problems.join("; ") || null,
    };
  }

  #filtered(where: string): readonly RunPart[] {
    if (!where.trim()) return this.#runs;
    const query = new Query(where);
    const terms = new Map(query.columns().map((column) => [nameOf(column), this.#term(column)]));
    return this.#runs.filter((run) =>
      query.fits((column) => this.#value(run, terms.get(nameOf(column)) ?? fieldTerm(column.name))),
    );
  }

  #sorted(runs: readonly RunPart[], by: string, reverse: boolean): RunPart[] {
    let key = SORTS[Object.hasOwn(SORTS, by) ? by : "age"];
    let descending = false;
    if (!Object.hasOwn(SORTS, by)) {
      try {
        const term = this.#meaning(by);
        key = (run) => this.#value(run, term);
        descending = term.kind === "metric" && this.#goal(term) === "max";
      } catch {
        // what means nothing orders nothing
      }
    }
    const keyed = runs.map((run) => ({ run, key: sortKey(key?.(run)) }));
    const known = keyed.filter((pair) => pair.key !== null);
    const way = reverse !== descending ? -1 : 1;
    known.sort((a, b) => way * compareKeys(a.key, b.key) || compareTexts(a.run.id, b.run.id));
    return [...known, ...keyed.filter((pair) => pair.key === null)].map(({ run }) => run);
  }

  #grouped(runs: readonly RunPart[], by: string): [RunTable["groups"], readonly RunPart[]] {
    if (!by) return [[], runs];
    const term = this.#meaning(by);
    const members = new Map<string, { key: SortKey; runs: RunPart[] }>();
    for (const run of runs) {
      const value = this.#value(run, term);
      const text = valueText(value, term);
      const group = members.get(text) ?? { key: sortKey(value), runs: [] };
      group.runs.push(run);
      members.set(text, group);
    }
    const ordered = [...members].sort(([, a], [, b]) => compareKeys(a.key, b.key));
    const groups: RunTable["groups"] = [];
    let first = 0;
    for (const [key, group] of ordered) {
      const live = group.runs.filter(({ detail }) => detail.row.status === "live").length;
      groups.push({ key, first, count: group.runs.length, live, best: this.#best(group.runs) });
      first += group.runs.length;
    }
    return [groups, ordered.flatMap(([, group]) => group.runs)];
  }

  #best(runs: readonly RunPart[]): number | null {
    const names = new Set(runs.flatMap(({ detail }) => detail.row.metric ?? []));
    const [name] = names;
    if (names.size !== 1 || name === undefined) return null;
    const goal = this.#goal({ kind: "metric", name, statistic: "last", step: null });
    const values = runs
      .map(({ curve, detail }) => asNumber(curve?.best ?? detail.row.last))
      .filter((value) => Number.isFinite(value));
    if (!values.length || goal === null) return null;
    return goal === "min" ? Math.min(...values) : Math.max(...values);
  }

  #meaning(typed: string): Term {
    return this.#typed.get(typed) ?? this.#term(parseColumn(typed));
  }

  /** What a column means: what every run has, else a setting, else a metric. */
  #term({ name, statistic, step }: Column): Term {
    const metric: Term = { kind: "metric", name, statistic: statistic ?? "last", step };
    if (statistic !== null || step !== null) return this.#requireHeld(this.#requireKnown(metric));
    if (Object.hasOwn(FIELDS, name)) return fieldTerm(FIELDS[name] ?? name);
    const setting = this.#setting(name);
    if (setting === null) return this.#requireKnown(metric);
    if (setting !== name && this.#goal(metric) !== null) return metric;
    return { kind: "setting", name: setting, statistic: "last", step: null };
  }

  #requireKnown(term: Term): Term {
    if (this.#runs.some(({ id }) => this.#metrics.get(id)?.has(term.name))) return term;
    throw new Error(`no run here has a setting or metric '${term.name}'`);
  }

  /** Refuses a single row of runs that are too long to be held whole. */
  #requireHeld(term: Term): Term {
    const needsRow = term.step !== null || term.statistic === "first";
    if (needsRow && this.#runs.some((run) => this.#rowValue(run, term.name, term.step) === undefined)) {
      throw new Error(
        `${labelOf(term)} is one row of a long run, and a report holds its curve alone: linnet board --web`,
      );
    }
    return term;
  }

  #setting(name: string): string | null {
    for (const wanted of [name, name.replaceAll("-", "_")]) {
      const exact = [wanted, ...PREFERRED.map((prefix) => prefix + wanted)].find((one) => this.#settings.includes(one));
      if (exact !== undefined) return exact;
      const ends = this.#settings.filter((key) => key.endsWith(`.${wanted}`));
      if (ends.length > 1) throw new Error(`'${name}' could be any of ${ends.slice(0, 5).join(", ")}; say which`);
      if (ends[0] !== undefined) return ends[0];
    }
    return null;
  }

  #value(run: RunPart, term: Term): Value {
    const { detail } = run;
    if (term.kind === "field") return fieldOf(run, term.name);
    if (term.kind === "setting") return detail.settings[term.name] as Value;
    const metric = this.#metrics.get(run.id)?.get(term.name);
    if (!metric) return null;
    if (term.step !== null || term.statistic === "first") return this.#rowValue(run, term.name, term.step);
    const figure = { last: metric.last, best: metric.best, min: metric.low, max: metric.high }[term.statistic];
    return figure === null ? null : asNumber(figure);
  }

  /** Which way is better for a metric; null where no run says it, or they contradict each other. */
  #goal(term: Term): Goal {
    const goals = new Set(this.#runs.flatMap(({ id }) => this.#metrics.get(id)?.get(term.name)?.goal ?? []));
    const [goal] = goals;
    return goals.size === 1 ? (goal ?? null) : null;
  }

  #described(terms: readonly Term[]): ColumnInfo[] {
    const labels = terms.map(labelOf);
    return terms.map((term, at) => {
      const label = labels[at] ?? term.name;
      const typed = typedOf(term);
      return {
        term: typed,
        label: labels.filter((other) => other === label).length > 1 ? typed : label,
        kind: term.kind,
        goal: term.kind === "metric" ? this.#goal(term) : null,
        numeric:
          term.kind === "setting"
            ? this.#runs.every(({ detail }) => ["number", "boolean"].includes(typeof (detail.settings[term.name] ?? 0)))
            : !LEFT.has(term.name),
      };
    });
  }
}

function fieldTerm(name: string): Term {
  return { kind: "field", name, statistic: "last", step: null };
}

function nameOf({ name, statistic, step }: Column): string {
  return JSON.stringify([name, statistic, step]);
}

function fieldOf({ detail: { row, manifest } }: RunPart, name: string): Value {
  const given = manifest.name;
  switch (name) {
    case "run":
      return row.id;
    case "name":
      return typeof given === "string" ? given : null;
    case "time":
      return row.seconds;
    case "status":
    case "recipe":
    case "experiment":
    case "group":
    case "parent":
    case "tags":
    case "step":
    case "age":
    case "created":
      return row[name];
    default:
      return null;
  }
}

function labelOf({ kind, name, statistic, step }: Term): string {
  if (kind === "setting") return name.slice(name.lastIndexOf(".") + 1) || name;
  if (step !== null) return `${name}@${step}`;
  return kind === "field" || statistic === "last" ? name : `${statistic}(${name})`;
}

/** How it is typed, so that nothing else is meant. */
function typedOf({ kind, name, statistic, step }: Term): string {
  const plain = /^[\w./:+-]+$/u.test(name) ? name : `"${name}"`;
  if (kind !== "metric") return plain;
  return step !== null ? `${plain}@${step}` : `${statistic}(${plain})`;
}

function finite(value: number): number | null {
  return Number.isFinite(value) ? value : null;
}

function sortKey(value: Value): SortKey {
  if (value === null || value === undefined || value === "") return null;
  if (Array.isArray(value)) return value.length ? [1, 0, value.join(" ")] : null;
  if (typeof value === "string") return [1, 0, value];
  const amount = Number(value);
  return Number.isNaN(amount) ? null : [0, amount, ""];
}

function compareKeys(a: SortKey, b: SortKey): number {
  if (!a || !b) return Number(a === null) - Number(b === null);
  if (a[0] !== b[0]) return a[0] - b[0];
  return a[1] === b[1] ? compareTexts(a[2], b[2]) : a[1] - b[1];
}

/** By letters' numbers, as Python does. */
function compareTexts(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

function valueText(value: Value, term: Term): string {
  if (value === null || value === undefined || (Array.isArray(value) && !value.length)) return ABSENT;
  if (term.kind === "field") {
    if ((term.name === "time" || term.name === "age") && typeof value === "number") return duration(value);
    if (term.name === "created" && typeof value === "number") return moment(value).slice(0, 16);
    if (Array.isArray(value)) return value.map((tag) => `#${tag}`).join(" ");
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return term.kind === "setting" ? String(Number(value.toPrecision(6))) : number(value);
  return Array.isArray(value) ? value.join(" ") : String(value);
}

function cellOf(value: Value): RunRow["values"][number] {
  if (value === undefined || value === null) return null;
  if (Array.isArray(value)) return value.length ? value.map(String).join(" ") : null;
  if (typeof value === "number" && !Number.isFinite(value)) {
    return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  if (typeof value === "object") return JSON.stringify(value);
  return value as string | number | boolean;
}
