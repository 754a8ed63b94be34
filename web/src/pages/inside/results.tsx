import { useMemo } from "preact/hooks";
import { choice, pageParam } from "../../address";
import { roundNumbers } from "../../charts/scale";
import { useLoaded } from "../../data/loaded";
import { source, theme } from "../../data/state";
import type { InsideResult } from "../../data/types";
import { CommandLine, Empty } from "../../ui/empty";
import { Segmented } from "../../ui/segmented";
import { useWidth } from "../../ui/width";
import { count, number } from "../../words";
import { colourAt, inkAt } from "./colour-scale";
import { HeatMap } from "./heat-map";
import { linePath } from "./row-curve";
import { LIKENESS } from "./similarity";

const KINDS = ["all", "cka", "lmc", "drift", "lens-words", "attention"] as const;
const kindParam = pageParam("kind", choice(...KINDS), "all");
const MOST_WORDS = 60; // places of a prompt

/** What analysis commands found about the run's models and kept in it. */
export function ResultsView({ id }: { id: string }) {
  const { value, problem } = useLoaded(id, "results", (run, signal) => source().insideResults(run, signal), [
    "artifacts",
    "log",
  ]);
  if (!value) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading what was found …"}</p>;
  if (!value.length) {
    return (
      <Empty title="No analysis was kept in this run">
        <p>Each of these shows its finding in the terminal, and with --record keeps it here:</p>
        <CommandLine text={`linnet cka ${id} --record`} />
        <CommandLine text={`linnet lmc ${id} OTHER --record`} />
        <CommandLine text={`linnet drift ${id} --record`} />
        <CommandLine text={`linnet lens-words ${id} --prompt "…" --record`} />
      </Empty>
    );
  }
  const kinds = KINDS.filter((kind) => kind === "all" || value.some((one) => one.kind === kind));
  const kind = kinds.includes(kindParam.value) ? kindParam.value : "all";
  const shown = value.filter((one) => kind === "all" || one.kind === kind).reverse();
  return (
    <>
      {kinds.length > 2 && (
        <div class="toolbar">
          <Segmented
            label="Command"
            options={kinds}
            value={kind}
            onChange={(next) => {
              kindParam.value = next;
            }}
          />
        </div>
      )}
      {shown.map((result, at) => (
        <section class="card inside-result" key={`${result.kind} ${result.picture ?? at}`} aria-label={result.kind}>
          <h3>
            {result.kind} <em>{result.step === null ? "" : `at step ${count(result.step)}`}</em>
          </h3>
          <p>{result.text}</p>
          <Finding id={id} result={result} />
        </section>
      ))}
    </>
  );
}

function Finding({ id, result }: { id: string; result: InsideResult }) {
  const { kind, numbers, picture } = result;
  if (numbers && kind === "lmc") {
    const line = lineOf(numbers);
    if (line) return <LossLine line={line} />;
  }
  if (numbers && (kind === "cka" || kind === "drift")) {
    const table =
      kind === "cka" ? tableOf(numbers, "rows", "columns", "cka") : tableOf(numbers, "layers", "steps", "distance");
    if (table) return <FoundMap kind={kind} table={table} />;
  }
  if (numbers && kind === "lens-words") {
    const words = wordsOf(numbers);
    if (words) return <LensWords words={words} />;
  }
  if (picture === null) return null;
  return <img class="inside-picture" src={source().artifactAddress(id, picture)} alt={result.text} loading="lazy" />;
}

interface Table {
  rows: string[];
  columns: string[];
  values: number[][];
}

function FoundMap({ kind, table }: { kind: "cka" | "drift"; table: Table }) {
  const isLikeness = kind === "cka";
  return (
    <HeatMap
      name={kind}
      quantity={isLikeness ? "CKA" : "moved, as a share of the first length"}
      rows={table.rows}
      columns={table.columns}
      rowsAre="layer"
      columnsAre={isLikeness ? "layer of the other" : "step"}
      values={table.values}
      {...(isLikeness
        ? { scale: LIKENESS, cell: Math.max(8, Math.min(46, Math.floor(560 / table.columns.length))) }
        : {})}
    />
  );
}

/** A table of what a command printed; null where it is not as long and as wide as its labels. */
export function tableOf(fields: Record<string, unknown>, rows: string, columns: string, values: string): Table | null {
  const [rowLabels, columnLabels, table] = [texts(fields[rows]), texts(fields[columns]), fields[values]];
  if (!rowLabels || !columnLabels || !Array.isArray(table) || table.length !== rowLabels.length) return null;
  const read = table.map(numbers);
  if (read.some((row) => row?.length !== columnLabels.length) || !columnLabels.length) return null;
  return { rows: rowLabels, columns: columnLabels, values: read as number[][] };
}

export interface LossLineNumbers {
  a: string;
  b: string;
  alphas: number[];
  losses: number[];
  before: number[] | null; // without alignment
  barrier: number;
  verdict: string;
}

/** The losses on the line between two models; null where they are not as many as the places. */
export function lineOf(fields: Record<string, unknown>): LossLineNumbers | null {
  const [alphas, losses, before] = [numbers(fields.alphas), numbers(fields.losses), numbers(fields.before)];
  if (!alphas || alphas.length < 2 || losses?.length !== alphas.length) return null;
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  return {
    a: text(fields.a),
    b: text(fields.b),
    alphas,
    losses,
    before: before?.length === alphas.length ? before : null,
    barrier: typeof fields.barrier === "number" ? fields.barrier : Number.NaN,
    verdict: text(fields.verdict),
  };
}

const [LEFT, RIGHT, TOP, HEIGHT, FOOT] = [54, 16, 12, 200, 36];

/** The loss along the line, above the straight line between its ends: what sticks out is the barrier. */
function LossLine({ line }: { line: LossLineNumbers }) {
  const [box, room] = useWidth<HTMLDivElement>(640);
  const { alphas, losses, before, barrier } = line;
  const width = Math.min(760, room) - LEFT - RIGHT;
  const all = [...losses, ...(before ?? [])].filter(Number.isFinite);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  const room_above = (most - least || 1) * 0.08;
  const [low, high] = [least - room_above, most + room_above];
  const [first, last] = [alphas[0] ?? 0, alphas.at(-1) ?? 1];
  const xOf = (alpha: number) => LEFT + ((alpha - first) / (last - first || 1)) * width;
  const yOf = (loss: number) => TOP + (1 - (loss - low) / (high - low)) * HEIGHT;
  const [begin, end] = [losses[0] ?? 0, losses.at(-1) ?? 0];
  const straight = (alpha: number) => begin + ((end - begin) * (alpha - first)) / (last - first || 1);
  const top = highest(alphas, losses, straight);
  const [topAlpha, topLoss] = [alphas[top] ?? 0, losses[top] ?? 0];
  return (
    <div ref={box}>
      <svg
        class="row-curve"
        width={LEFT + width + RIGHT}
        height={TOP + HEIGHT + FOOT}
        role="img"
        aria-label={`Loss from ${number(begin)} to ${number(end)} along the line, at most ${number(most)}; barrier ${number(barrier, 3)} nats`}
      >
        {roundNumbers(low, high, 4).map((loss) => (
          <g key={loss}>
            <line x1={LEFT} x2={LEFT + width} y1={yOf(loss)} y2={yOf(loss)} stroke="var(--line)" />
            <text x={LEFT - 6} y={yOf(loss)} text-anchor="end" dominant-baseline="central">
              {number(loss, 3)}
            </text>
          </g>
        ))}
        {roundNumbers(first, last, 5).map((alpha) => (
          <text key={alpha} x={xOf(alpha)} y={TOP + HEIGHT + 15} text-anchor="middle">
            {number(alpha, 2)}
          </text>
        ))}
        <text class="axis" x={LEFT + width / 2} y={TOP + HEIGHT + 31} text-anchor="middle">
          how much of {line.b || "the other"}
        </text>
        <line class="straight" x1={xOf(first)} y1={yOf(begin)} x2={xOf(last)} y2={yOf(end)} />
        {before && (
          <path
            class="line before"
            d={linePath(alphas.map((alpha, at) => [xOf(alpha), yOf(before[at] ?? Number.NaN)]))}
          />
        )}
        <path class="line" d={linePath(alphas.map((alpha, at) => [xOf(alpha), yOf(losses[at] ?? Number.NaN)]))} />
        {barrier > 0 && (
          <>
            <line
              class="barrier"
              x1={xOf(topAlpha)}
              x2={xOf(topAlpha)}
              y1={yOf(topLoss)}
              y2={yOf(straight(topAlpha))}
            />
            <text
              class="on-line"
              x={xOf(topAlpha) + 7}
              y={(yOf(topLoss) + yOf(straight(topAlpha))) / 2}
              dominant-baseline="central"
            >
              {number(barrier, 3)} nats
            </text>
          </>
        )}
        {alphas.map((alpha, at) => (
          <circle key={alpha} cx={xOf(alpha)} cy={yOf(losses[at] ?? Number.NaN)} r={3}>
            <title>{`${number(alpha, 3)}: ${number(losses[at] ?? null, 5)}`}</title>
          </circle>
        ))}
      </svg>
      <p class="faint">
        {line.verdict && <b>{line.verdict}. </b>}
        The dashed line joins the ends: what the loss rises above it is the barrier.
        {before && " The faint line is the loss without alignment."}
      </p>
    </div>
  );
}

function highest(alphas: readonly number[], losses: readonly number[], straight: (alpha: number) => number): number {
  let best = 0;
  const height = (at: number) => (losses[at] ?? Number.NaN) - straight(alphas[at] ?? 0);
  losses.forEach((_, at) => {
    if (height(at) > height(best)) best = at;
  });
  return best;
}

interface Words {
  tokens: string[];
  layers: string[];
  words: { text: string; probability: number }[][]; // by layer, then place
}

/** What each layer would say after each token; null where the table is not as its labels say. */
export function wordsOf(fields: Record<string, unknown>): Words | null {
  const [tokens, layers, table] = [texts(fields.tokens), texts(fields.layers), fields.words_LTK];
  if (!tokens || !layers || !Array.isArray(table) || table.length !== layers.length) return null;
  const words = table.map((layer: unknown) =>
    Array.isArray(layer)
      ? layer.map((top: unknown) => {
          const first: unknown = Array.isArray(top) ? top[0] : null;
          const { text, probability } = (first ?? {}) as { text?: unknown; probability?: unknown };
          return {
            text: typeof text === "string" ? text : "",
            probability: typeof probability === "number" ? probability : Number.NaN,
          };
        })
      : [],
  );
  return words.every((layer) => layer.length === tokens.length) ? { tokens, layers, words } : null;
}

function LensWords({ words }: { words: Words }) {
  const from = Math.max(0, words.tokens.length - MOST_WORDS);
  const rows = useMemo(() => [...words.words.entries()].reverse(), [words]);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a table that scrolls must be reached by the keyboard
    <div class="lens-words" tabIndex={0} role="region" aria-label="What each layer would say">
      <table>
        <thead>
          <tr>
            <th scope="col">after</th>
            {words.tokens.slice(from).map((token, at) => (
              <th scope="col" key={at} class="mono">
                {visible(token)}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(([layer, row]) => (
            <tr key={layer}>
              <th scope="row">{words.layers[layer]}</th>
              {row.slice(from).map(({ text, probability }, at) => (
                <td
                  key={at}
                  class="mono"
                  style={{ background: colourAt(probability, theme.value), color: inkAt(probability, theme.value) }}
                  title={`${(100 * probability).toFixed(1)} %`}
                >
                  {visible(text)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {from > 0 && (
        <p class="faint">
          The last {count(MOST_WORDS)} places of {count(words.tokens.length)}.
        </p>
      )}
    </div>
  );
}

/** A token with its blanks and line ends seen. */
export function visible(token: string): string {
  return token.replaceAll(" ", "·").replaceAll("\n", "⏎").replaceAll("\t", "⇥") || "∅";
}

function texts(value: unknown): string[] | null {
  return Array.isArray(value) ? value.map(String) : null;
}

/** Numbers of a list; null is none, NaN. */
function numbers(value: unknown): number[] | null {
  return Array.isArray(value) ? value.map((one) => (typeof one === "number" ? one : Number.NaN)) : null;
}
