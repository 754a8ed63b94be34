import { useMemo } from "preact/hooks";
import { pageParam, text } from "../../address";
import { useLoaded, useLoadedRuns } from "../../data/loaded";
import { nameOf, source } from "../../data/state";
import type { Checkpoint, CheckpointDetail } from "../../data/types";
import { Bars } from "../../ui/bars";
import { type Cell, DataTable } from "../../ui/data-table";
import { CommandLine, Empty } from "../../ui/empty";
import { RunLabel } from "../../ui/run-label";
import { asNumber, compact, count, number, plural, size } from "../../words";
import { PageTitle } from "../page-title";
import "./checkpoints.css";

interface Entry {
  run: string;
  checkpoint: Checkpoint;
}

export const MOST_RUNS = 50;
/** `run@step`; empty: the best checkpoint. */
const openParam = pageParam("open", text, "");
const wordsParam = pageParam("words", text, "");
const tensorParam = pageParam("tensor", text, "");

/** The checkpoints of runs, and one of them opened: how to run it, its metadata and tensors. */
export function CheckpointsView({ runs }: { runs: readonly string[] }) {
  const shown = runs.slice(0, MOST_RUNS);
  const answers = useLoadedRuns(shown, "checkpoints", (id, signal) => source().checkpoints(id, signal), [
    "checkpoints",
  ]);
  const entries = useMemo(
    () => shown.flatMap((run) => (answers.get(run)?.value ?? []).map((checkpoint): Entry => ({ run, checkpoint }))),
    [answers, shown.join("\n")],
  );
  if (entries.length === 0) {
    if (answers.size < shown.length) return <p class="loading">reading checkpoints …</p>;
    const problem = shown.flatMap((id) => answers.get(id)?.problem ?? [])[0];
    return (
      <Empty title={problem ?? "No checkpoints yet"}>
        <p>
          A run writes GGUF files into <code>weights/</code> five times by default, or every so many steps (
          <code>--checkpoint-every</code>).
        </p>
      </Empty>
    );
  }
  const opened = entries.find((entry) => nameEntry(entry) === openParam.value) ?? bestEntry(entries);
  return (
    <>
      <CheckpointTable entries={entries} several={shown.length > 1} opened={opened} />
      {runs.length > MOST_RUNS && (
        <p class="faint">
          The first {MOST_RUNS} of {runs.length} runs.
        </p>
      )}
      <OpenedCheckpoint key={nameEntry(opened)} entry={opened} />
    </>
  );
}

const nameEntry = ({ run, checkpoint }: Entry) => `${run}@${checkpoint.step}`;

/** The least held-out loss, else what a run itself calls its best, else the latest. */
export function bestEntry(entries: readonly Entry[]): Entry {
  const loss = ({ checkpoint }: Entry) => {
    const value = asNumber(checkpoint.validation_loss);
    return Number.isFinite(value) ? value : Number.POSITIVE_INFINITY;
  };
  const sorted = [...entries].sort(
    (a, b) =>
      loss(a) - loss(b) ||
      Number(b.checkpoint.best) - Number(a.checkpoint.best) ||
      b.checkpoint.step - a.checkpoint.step,
  );
  return sorted[0] as Entry;
}

function CheckpointTable({ entries, several, opened }: { entries: readonly Entry[]; several: boolean; opened: Entry }) {
  const best = bestEntry(entries);
  const hasBest = Number.isFinite(asNumber(best.checkpoint.validation_loss)) || best.checkpoint.best;
  const columns = [
    ...(several ? [{ name: "run" }] : []),
    { name: "step", numeric: true, format: (value: Cell) => count(value as number) },
    { name: "held-out loss", numeric: true, format: (value: Cell) => number(value as number | null) },
    { name: "training loss", numeric: true, format: (value: Cell) => number(value as number | null) },
    { name: "tokens seen", numeric: true, format: (value: Cell) => (typeof value === "number" ? compact(value) : "–") },
    { name: "size", numeric: true, format: (value: Cell) => size(value as number) },
    { name: "which" },
  ];
  const rows = entries.map(({ run, checkpoint }) => [
    ...(several ? [nameOf(run)] : []),
    checkpoint.step,
    figure(checkpoint.validation_loss),
    figure(checkpoint.train_loss),
    checkpoint.tokens,
    checkpoint.bytes,
    [
      hasBest && run === best.run && checkpoint.step === best.checkpoint.step && (several ? "best of all" : "best"),
      several && checkpoint.best && "best of its run",
      checkpoint.latest && "latest",
    ]
      .filter(Boolean)
      .join(", "),
  ]);
  return (
    <DataTable
      label="Checkpoints"
      sortParam="order"
      columns={columns}
      rows={rows}
      height={several ? 12 : 8}
      sortedBy={{ column: several ? 2 : 0, descending: !several }}
      selected={entries.indexOf(opened)}
      onRow={(index) => {
        const entry = entries[index];
        if (entry) openParam.value = nameEntry(entry);
      }}
    />
  );
}

function figure(value: Checkpoint["train_loss"]): number | null {
  return value === null ? null : asNumber(value);
}

function OpenedCheckpoint({ entry: { run, checkpoint } }: { entry: Entry }) {
  const { value, problem } = useLoaded(run, `checkpoint ${checkpoint.step}`, (id, signal) =>
    source().checkpoint(id, checkpoint.step, signal),
  );
  return (
    <section aria-label={`Checkpoint of step ${checkpoint.step}`}>
      <PageTitle
        title={`Step ${count(checkpoint.step)}`}
        note={
          <>
            <RunLabel id={run} /> <span class="mono">{checkpoint.path}</span> · {size(checkpoint.bytes)}
          </>
        }
      />
      <div class="commands">
        {checkpoint.commands.map((command) => (
          <CommandLine key={command} text={command} />
        ))}
      </div>
      {value ? (
        <Contents run={run} detail={value} />
      ) : (
        <p class={problem ? "bad" : "loading"}>{problem ?? "reading the file …"}</p>
      )}
    </section>
  );
}

function Contents({ run, detail }: { run: string; detail: CheckpointDetail }) {
  const typed = wordsParam.value;
  const tensor = tensorParam.value || null;
  const has = (words: string) => words.toLowerCase().includes(typed.toLowerCase());
  const tensors = useMemo(() => detail.tensors.filter(({ name, type }) => has(`${name} ${type}`)), [detail, typed]);
  const metadata = useMemo(() => detail.metadata.filter(({ key, value }) => has(`${key} ${value}`)), [detail, typed]);
  const parameters = detail.tensors.reduce(
    (total, { shape }) => total + shape.reduce((product, length) => product * length, 1),
    0,
  );
  const tensorRows = useMemo(
    () =>
      tensors.map(({ name, shape, type, bytes }) => [
        name,
        shape.join(" × "),
        type,
        shape.reduce((product, length) => product * length, 1),
        bytes,
      ]),
    [tensors],
  );
  const metadataRows = useMemo(() => metadata.map(({ key, value, type }) => [key, value, type]), [metadata]);
  return (
    <>
      <PageTitle
        title="Inside the GGUF"
        note={`${plural(detail.tensors.length, "tensor")}, ${compact(parameters)} parameters, ${plural(detail.metadata.length, "key")}`}
      >
        <input
          class="search"
          type="search"
          placeholder="filter names"
          aria-label="Filter tensors and metadata"
          value={typed}
          onInput={(event) => wordsParam.replace(event.currentTarget.value)}
        />
      </PageTitle>
      <div class="gguf">
        <div>
          <DataTable
            wide
            label={source().live ? "Tensors; choose one for its histogram" : "Tensors"}
            sortParam="tensors"
            columns={TENSOR_COLUMNS}
            rows={tensorRows}
            height={12}
            selected={tensors.findIndex(({ name }) => name === tensor)}
            onRow={(index) => tensorParam.replace(tensors[index]?.name ?? "")}
          />
          {!source().live ? (
            <p class="faint hint">
              How the numbers of a tensor are distributed is read from the file: linnet board --web
            </p>
          ) : tensor === null ? (
            <p class="faint hint">Choose a tensor to see how its numbers are distributed.</p>
          ) : (
            <TensorCard key={tensor} run={run} step={detail.checkpoint.step} name={tensor} />
          )}
        </div>
        <DataTable wide label="Metadata" columns={METADATA_COLUMNS} rows={metadataRows} height={12} />
      </div>
    </>
  );
}

const TENSOR_COLUMNS = [
  { name: "tensor" },
  { name: "shape" },
  { name: "type" },
  { name: "numbers", numeric: true, format: (value: Cell) => count(value as number) },
  { name: "size", numeric: true, format: (value: Cell) => size(value as number) },
];
const METADATA_COLUMNS = [{ name: "metadata" }, { name: "value" }, { name: "type" }];

function TensorCard({ run, step, name }: { run: string; step: number; name: string }) {
  const { value, problem } = useLoaded(run, `tensor ${step} ${name}`, (id, signal) =>
    source().tensor(id, step, name, signal),
  );
  return (
    <article class="card tensor">
      <h3>
        <span class="mono">{name}</span>
      </h3>
      {value ? (
        <>
          <Bars counts={value.counts} edges={value.edges} label={`Histogram of ${name}`} />
          <p class="figures">
            mean {number(value.mean)} · deviation {number(value.std)} · from {number(value.min)} to {number(value.max)}{" "}
            · {count(value.zeros)} zeros
            {value.nonfinite > 0 && <span class="warn"> · {count(value.nonfinite)} not finite</span>}
          </p>
        </>
      ) : (
        <p class={problem ? "bad" : "faint"}>{problem ?? "reading the tensor …"}</p>
      )}
    </article>
  );
}
