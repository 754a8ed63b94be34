/**
 * `Query`: which runs a filter means, `loss<2 recipe:warm-start tag:baseline lr>=1e-3`. The server has the same in
 * linnet/runs/query.py, and query-cases.json, which the tests of both read, keeps them from drifting apart.
 */

export type Statistic = "last" | "best" | "first" | "min" | "max";
export type Value = string | number | boolean | null | undefined | readonly Value[];

/** A column as it was typed. */
export interface Column {
  name: string;
  statistic: Statistic | null;
  step: number | null;
}

const STATISTICS: readonly Statistic[] = ["last", "best", "first", "min", "max"];
const STATUSES = ["live", "completed", "interrupted", "aborted", "errored", "crashed", "stalled"];
/** What every run has, by the words for it. */
export const FIELDS: Readonly<Record<string, string>> = {
  run: "run",
  id: "run",
  name: "name",
  status: "status",
  recipe: "recipe",
  experiment: "experiment",
  group: "group",
  parent: "parent",
  tag: "tags",
  tags: "tags",
  step: "step",
  time: "time",
  seconds: "time",
  age: "age",
  created: "created",
  writer: "writer",
};
/** Where a word by itself is looked for. */
const NAMED = ["run", "name", "status", "recipe", "experiment", "group", "tags"];
const OPERATORS = ["<=", ">=", "==", "!=", "!~", "<", ">", "=", "~", ":"];
const ORDERING = ["<", "<=", ">", ">="];
const UNITS: Readonly<Record<string, number>> = { "": 1, "%": 0.01, k: 1e3, K: 1e3, M: 1e6, G: 1e9, B: 1e9, T: 1e12 };
const SECONDS: Readonly<Record<string, number>> = {
  "": 1,
  s: 1,
  sec: 1,
  m: 60,
  min: 60,
  h: 3600,
  d: 86_400,
  w: 604_800,
};
const TRUTH: Readonly<Record<string, boolean>> = {
  true: true,
  yes: true,
  on: true,
  false: false,
  no: false,
  off: false,
};
const DEEPEST = 50;

export class QueryError extends Error {}

interface Comparison {
  kind: "comparison";
  column: Column;
  operator: string;
  text: string;
  number: number | null;
}
type Node =
  | Comparison
  | { kind: "word"; text: string }
  | { kind: "and" | "or"; parts: Node[] }
  | { kind: "not"; part: Node };

export function parseColumn(typed: string): Column {
  const text = typed.trim();
  const quoted = unquoted(text);
  if (quoted !== null) return { name: quoted, statistic: null, step: null };
  const call = /^([A-Za-z_]+)\s*\(\s*([\s\S]*?)\s*\)$/.exec(text);
  if (call) {
    const statistic = STATISTICS.find((word) => word === call[1]);
    if (!statistic) throw new QueryError(`${call[1]}() of a metric does not exist`);
    const name = unquoted(call[2] ?? "") ?? call[2] ?? "";
    if (!name) throw new QueryError(`${statistic}() needs the name of a metric, as in ${statistic}(loss)`);
    return { name, statistic, step: null };
  }
  const at = /^([\s\S]+)@([0-9]{1,18})$/.exec(text);
  if (at) return { name: unquoted(at[1] ?? "") ?? at[1] ?? "", statistic: null, step: Number(at[2]) };
  if (!text) throw new QueryError("the name of a column is empty");
  return { name: text, statistic: null, step: null };
}

function unquoted(text: string): string | null {
  const [quote] = text;
  if (text.length < 2 || quote === undefined || !"\"'`".includes(quote)) return null;
  return text.indexOf(quote, 1) === text.length - 1 ? text.slice(1, -1) : null;
}

export class Query {
  readonly #node: Node;

  /** A QueryError where the text is no filter. */
  constructor(text: string) {
    this.#node = new Parser(text).parse();
  }

  columns(): Column[] {
    return columnsOf(this.#node);
  }

  fits(lookUp: (column: Column) => Value): boolean {
    return fits(this.#node, lookUp);
  }
}

function columnsOf(node: Node): Column[] {
  if (node.kind === "comparison") return [node.column];
  if (node.kind === "word") return [];
  return node.kind === "not" ? columnsOf(node.part) : node.parts.flatMap(columnsOf);
}

function fits(node: Node, lookUp: (column: Column) => Value): boolean {
  switch (node.kind) {
    case "comparison":
      return compares(node, lookUp(node.column));
    case "word": {
      const word = node.text.toLowerCase();
      return NAMED.some((name) => {
        const value = lookUp({ name, statistic: null, step: null });
        return isGiven(value) && textOf(value).toLowerCase().includes(word);
      });
    }
    case "not":
      return !fits(node.part, lookUp);
    case "and":
      return node.parts.every((part) => fits(part, lookUp));
    case "or":
      return node.parts.some((part) => fits(part, lookUp));
  }
}

function isGiven(value: Value): boolean {
  return !(value === null || value === undefined || value === "" || (Array.isArray(value) && !value.length));
}

/** As Python writes a value, since that is what is compared there. */
function textOf(value: Value): string {
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value))
    return `[${value.map((one) => (typeof one === "string" ? `'${one}'` : textOf(one))).join(", ")}]`;
  return String(value);
}

function compares(comparison: Comparison, value: Value): boolean {
  const { operator, text, number } = comparison;
  if (Array.isArray(value)) {
    if (operator === "!=" || operator === "!~")
      return value.length > 0 && value.every((one) => compares(comparison, one));
    return value.some((one) => compares(comparison, one)) || comparesText(operator, text, textOf(value));
  }
  if (value === null || value === undefined || Number.isNaN(value)) return false;
  const truth = TRUTH[text.toLowerCase()];
  if (typeof value === "boolean" && truth !== undefined) return (value === truth) !== operator.startsWith("!");
  if ((typeof value === "number" || typeof value === "boolean") && number !== null && !operator.includes("~")) {
    return comparesNumber(operator, number, Number(value));
  }
  return comparesText(operator, text, textOf(value));
}

function comparesNumber(operator: string, wanted: number, value: number): boolean {
  switch (operator) {
    case "<":
      return value < wanted;
    case "<=":
      return value <= wanted;
    case ">":
      return value > wanted;
    case ">=":
      return value >= wanted;
    case "!=":
      return value !== wanted;
    default:
      return value === wanted;
  }
}

function comparesText(operator: string, typed: string, shown: string): boolean {
  const value = shown.toLowerCase();
  const wanted = typed.toLowerCase();
  const wild = /[*?[]/.test(wanted);
  switch (operator) {
    case ":":
      return value === wanted || (wild && matches(value, wanted));
    case "=":
    case "==":
      return value === wanted;
    case "!=":
      return value !== wanted;
    case "~":
      return value.includes(wanted) || (wild && matches(value, `*${wanted}*`));
    case "!~":
      return !(value.includes(wanted) || (wild && matches(value, `*${wanted}*`)));
    default:
      return false; // words have no order
  }
}

/** A pattern of the shell: `*`, `?`, `[a-c]`, `[!a]`. Without a regular expression, which a pattern could make slow. */
function matches(text: string, pattern: string): boolean {
  let [at, inPattern, star, mark] = [0, 0, -1, 0];
  while (at < text.length) {
    const [length, fit] = onePart(pattern, inPattern, text[at] ?? "");
    if (pattern[inPattern] === "*") {
      star = inPattern++;
      mark = at;
    } else if (fit) {
      inPattern += length;
      at++;
    } else if (star >= 0) {
      inPattern = star + 1;
      at = ++mark;
    } else return false;
  }
  while (pattern[inPattern] === "*") inPattern++;
  return inPattern === pattern.length;
}

/** How long the part of a pattern is that stands for one letter, and whether it fits this one. */
function onePart(pattern: string, at: number, letter: string): [number, boolean] {
  const sign = pattern[at];
  if (sign === undefined) return [0, false];
  if (sign === "?") return [1, true];
  const close = sign === "[" ? pattern.indexOf("]", at + (pattern[at + 1] === "!" ? 3 : 2)) : -1;
  if (close < 0) return [1, sign === letter];
  const turned = pattern[at + 1] === "!";
  const inside = pattern.slice(at + (turned ? 2 : 1), close);
  let fit = false;
  for (let here = 0; here < inside.length; here++) {
    if (inside[here + 1] === "-" && here + 2 < inside.length) {
      fit ||= letter >= (inside[here] ?? "") && letter <= (inside[here + 2] ?? "");
      here += 2;
    } else fit ||= inside[here] === letter;
  }
  return [close - at + 1, fit !== turned];
}

const NAME = /[^\s()<>=!~:"'`&|]+/y;
const VALUE = /[^\s()"'`]+/y;
const JOINING = /(?:(and|or)(?![^\s()"'`])|(&&?)|(\|\|?))/iy;
const NOT = /not(?![^\s()])|!(?![=~])/iy;
const NUMBER = /^([+-]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([A-Za-z%]*)$/;

/** Recursive descent over the text. */
class Parser {
  #at = 0;
  #depth = 0;

  constructor(readonly text: string) {}

  parse(): Node {
    const node = this.#either();
    if (this.#remaining()) throw this.#error(this.text[this.#at] === ")" ? "unexpected ')'" : "expected and, or");
    return node;
  }

  #either(): Node {
    const parts = [this.#all()];
    while (this.#joining() === "or") {
      this.#join();
      parts.push(this.#all());
    }
    return parts.length === 1 && parts[0] ? parts[0] : { kind: "or", parts };
  }

  #all(): Node {
    const parts = [this.#one()];
    while (this.#remaining() && this.text[this.#at] !== ")" && this.#joining() !== "or") {
      this.#join();
      parts.push(this.#one());
    }
    return parts.length === 1 && parts[0] ? parts[0] : { kind: "and", parts };
  }

  #one(): Node {
    this.#depth++;
    if (this.#depth > DEEPEST) throw this.#error(`more than ${DEEPEST} parentheses and nots within each other`);
    const node = this.#unguarded();
    this.#depth--;
    return node;
  }

  #unguarded(): Node {
    const remaining = this.#remaining();
    if (!remaining) throw this.#error("expected a comparison, as in loss<2");
    if (this.#match(NOT)) return { kind: "not", part: this.#one() };
    if (remaining.startsWith("(")) {
      const begin = this.#at++;
      const node = this.#either();
      if (!this.#remaining().startsWith(")")) throw this.#error("'(' is never closed", begin);
      this.#at++;
      return node;
    }
    return this.#comparison();
  }

  #comparison(): Node {
    const begin = this.#at;
    const column = this.#column();
    const after = this.#at;
    const remaining = this.#remaining();
    let operator = OPERATORS.find((sign) => remaining.startsWith(sign));
    if (operator === undefined) {
      const isPlain = column.statistic === null && column.step === null;
      return { kind: "word", text: isPlain ? column.name : this.text.slice(begin, after) };
    }
    this.#at += operator.length;
    const text = this.#value(operator);
    const number = this.#number(column, operator, text);
    const isField = FIELDS[column.name] !== undefined && Object.hasOwn(FIELDS, column.name);
    if (operator === ":" && isField) operator = "~";
    const isStatus = column.name === "status" && column.statistic === null && (operator === "=" || operator === "==");
    if (isStatus && !/[*?[]/.test(text) && !STATUSES.includes(text.toLowerCase())) {
      throw this.#error(`status '${text}' does not exist`, this.#at - text.length);
    }
    return { kind: "comparison", column, operator, text, number };
  }

  #column(): Column {
    const begin = this.#at;
    const quoted = this.#quoted();
    if (quoted !== null) {
      const step = this.#match(/@([0-9]{1,18})/y);
      return { name: quoted, statistic: null, step: step ? Number(step[1]) : null };
    }
    const word = this.#match(NAME);
    if (!word) throw this.#error(`expected a name, found '${this.text[this.#at]}'`);
    if (this.text[this.#at] !== "(") return parseColumn(word[0]);
    const statistic = STATISTICS.find((name) => name === word[0]);
    if (!statistic) throw this.#error(`${word[0]}() does not exist`, begin);
    this.#at++;
    this.#remaining();
    const name = this.#quoted() ?? this.#match(NAME)?.[0];
    if (!name || !this.#remaining().startsWith(")")) {
      throw this.#error(`expected the name of one metric and ')' after ${statistic}(`);
    }
    this.#at++;
    return { name, statistic, step: null };
  }

  #value(operator: string): string {
    if (!this.#remaining()) throw this.#error(`expected a value after '${operator}'`);
    const quoted = this.#quoted();
    if (quoted !== null) return quoted;
    const begin = this.#at;
    const word = this.#match(VALUE);
    if (!word || /^[<>=!~]/.test(word[0])) {
      throw this.#error(`expected a value after '${operator}', found '${this.text[begin]}'`, begin);
    }
    return word[0];
  }

  #number(column: Column, operator: string, text: string): number | null {
    const plain = column.statistic === null && column.step === null;
    const field = plain && Object.hasOwn(FIELDS, column.name) ? FIELDS[column.name] : undefined;
    let expected = "a number, as in 0.5, 1e-3 or 2M";
    let number: number | null;
    if (field === "created") {
      if (!ORDERING.includes(operator)) throw this.#error(`created takes ${ORDERING.join(" ")}, found '${operator}'`);
      number = momentOf(text);
      expected = "a date, as in 2026-05-31 or 2026-05-31T12:00";
    } else if (field === "time" || field === "age") {
      number = figureOf(text, SECONDS);
      expected = "a time, as in 90s, 15m, 2h or 3d";
    } else number = figureOf(text, UNITS);
    if (number === null && ORDERING.includes(operator)) {
      throw this.#error(`expected ${expected} after '${operator}', found '${text}'`, this.#at - text.length);
    }
    return number;
  }

  #quoted(): string | null {
    const quote = this.text[this.#at];
    if (quote === undefined || !"\"'`".includes(quote)) return null;
    const end = this.text.indexOf(quote, this.#at + 1);
    if (end < 0) throw this.#error(`the quote ${quote} is never closed`);
    const inside = this.text.slice(this.#at + 1, end);
    this.#at = end + 1;
    return inside;
  }

  #joining(): "" | "and" | "or" {
    this.#remaining();
    JOINING.lastIndex = this.#at;
    const word = JOINING.exec(this.text);
    if (!word) return "";
    return word[3] || word[1]?.toLowerCase() === "or" ? "or" : "and";
  }

  #join(): void {
    this.#remaining();
    this.#match(JOINING);
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const match = pattern.exec(this.text);
    if (match) this.#at += match[0].length;
    return match;
  }

  #remaining(): string {
    while (/\s/.test(this.text[this.#at] ?? "")) this.#at++;
    return this.text.slice(this.#at);
  }

  #error(problem: string, at = this.#at): QueryError {
    const here = this.text.slice(at, at + 24);
    return new QueryError(`filter '${this.text.slice(0, 100)}', ${here ? `at '${here}'` : "at its end"}: ${problem}`);
  }
}

function figureOf(text: string, units: Readonly<Record<string, number>>): number | null {
  if (/^[+-]*inf(?:inity)?$/i.test(text))
    return text.startsWith("-") ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
  const number = NUMBER.exec(text);
  const unit = number && Object.hasOwn(units, number[2] ?? "") ? units[number[2] ?? ""] : undefined;
  return number && unit !== undefined ? Number((number[1] ?? "").replaceAll("_", "")) * unit : null;
}

/** A date alone is the beginning of that day here, as everywhere. */
function momentOf(text: string): number | null {
  if (!/^\d{4}-\d{2}-\d{2}/.test(text)) return null;
  const milliseconds = new Date(text.length === 10 ? `${text}T00:00` : text.replace(" ", "T")).getTime();
  return Number.isNaN(milliseconds) ? null : milliseconds / 1000;
}
