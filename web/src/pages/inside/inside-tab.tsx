import { choice, link, pageParam } from "../../address";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import type { InsideInfo, LogEntry, RunDetail } from "../../data/types";
import { CommandLine, Empty } from "../../ui/empty";
import { Segmented } from "../../ui/segmented";
import { count } from "../../words";
import { AttentionView } from "./attention";
import { GraphView } from "./graph";
import { LayersView } from "./layers";
import { ResultsView } from "./results";
import { SimilarityView } from "./similarity";
import { SpreadView } from "./spread";
import { TimeView } from "./time";
import { TokensView } from "./tokens";
import "../run/flow.css";
import "./inside.css";

const VIEWS = {
  layers: "Layers",
  spread: "Histograms",
  time: "Time",
  graph: "Graph",
  alike: "Likeness",
  tokens: "Tokens",
  found: "Findings",
  attention: "Attention",
} as const;
type View = keyof typeof VIEWS;
const WORDS = Object.keys(VIEWS) as View[];
const viewParam = pageParam("see", choice(...WORDS), "layers");
const MOST_WARNINGS = 4;

/** What was told of the inside of a training: of layers, over steps, and of its models by analysis. */
export function InsideTab({ detail }: { detail: RunDetail }) {
  const { id } = detail.row;
  const { value: info, problem } = useLoaded(id, "inside", (run, signal) => source().inside(run, signal), ["inside"]);
  const { value: log } = useLoaded(id, "log", (run, signal) => source().log(run, signal), ["log", "status"]);
  const { value: results } = useLoaded(id, "results", (run, signal) => source().insideResults(run, signal), [
    "artifacts",
    "log",
  ]);
  if (!info || !results) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading what was told …"}</p>;
  const views = viewsOf(info, detail, results.length > 0);
  const view = views.includes(viewParam.value) ? viewParam.value : (views[0] ?? "layers");
  const isLookedAt = Object.keys(info.looks).length > 0;
  return (
    <div class="inside">
      <Warnings id={id} log={log ?? []} />
      {!isLookedAt && <NotLookedInto id={id} detail={detail} />}
      {views.length > 1 && (
        <div class="toolbar">
          <Segmented
            label="View"
            options={views}
            names={VIEWS}
            value={view}
            onChange={(next) => {
              viewParam.value = next;
            }}
          />
        </div>
      )}
      {views.length > 0 && <ViewBody view={view} id={id} info={info} />}
    </div>
  );
}

/** The views that have something to show. */
export function viewsOf(info: InsideInfo, { has }: RunDetail, hasResults: boolean): View[] {
  const { looks, tables, grams } = info;
  const shown: Record<View, boolean> = {
    layers: Object.keys(tables).length > 0,
    spread: (tables.taps ?? []).some(({ histogram }) => histogram),
    time: looks.regions !== undefined,
    graph: has.flow && (tables.taps !== undefined || looks.regions !== undefined),
    alike: grams.length > 0,
    tokens: looks.tokens !== undefined,
    found: hasResults,
    attention: has.attention,
  };
  return WORDS.filter((view) => shown[view]);
}

function ViewBody({ view, id, info }: { view: View; id: string; info: InsideInfo }) {
  switch (view) {
    case "layers":
      return <LayersView id={id} info={info} />;
    case "spread":
      return <SpreadView id={id} info={info} />;
    case "time":
      return <TimeView id={id} info={info} />;
    case "graph":
      return <GraphView id={id} info={info} />;
    case "alike":
      return <SimilarityView id={id} info={info} />;
    case "tokens":
      return <TokensView id={id} />;
    case "found":
      return <ResultsView id={id} />;
    case "attention":
      return <AttentionView id={id} />;
  }
}

function NotLookedInto({ id, detail }: { id: string; detail: RunDetail }) {
  const recipe = detail.row.recipe ?? "from-scratch";
  return (
    <Empty title="This training was not looked into">
      <p>
        Activations, gradients, drift and times of every layer are told with --inspect, at no cost to what is learnt:
      </p>
      <CommandLine text={`linnet train ${recipe} … --inspect all`} />
      <p>A training that goes on may be asked, too:</p>
      <CommandLine text={`linnet resume ${id} --inspect taps,grads@100`} />
    </Empty>
  );
}

/** What went wrong, with the step and the likely cause: told once each while it trained. */
function Warnings({ id, log }: { id: string; log: readonly LogEntry[] }) {
  const warnings = log.filter(({ level }) => level !== "info").reverse();
  if (!warnings.length) return null;
  return (
    <section class="card inside-warnings" aria-label="Warnings">
      <h3>What went wrong</h3>
      <ol>
        {warnings.slice(0, MOST_WARNINGS).map(({ step, level, text }, at) => (
          <li key={at} class={level}>
            <span aria-hidden="true">{level === "error" ? "✕" : "▲"}</span>
            <span class="unseen">{level}</span>
            <span class="num">{step === null ? "" : `step ${count(step)}`}</span>
            <span>{text}</span>
          </li>
        ))}
      </ol>
      {warnings.length > MOST_WARNINGS && (
        <a class="inside-link" href={link(`/run/${encodeURIComponent(id)}/log`, { level: "warnings" })}>
          {count(warnings.length - MOST_WARNINGS)} more in the log
        </a>
      )}
    </section>
  );
}
