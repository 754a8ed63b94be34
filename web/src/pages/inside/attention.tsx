import { useEffect, useMemo, useState } from "preact/hooks";
import { number as numberCodec, pageParam, text } from "../../address";
import { useLoaded } from "../../data/loaded";
import { source, theme } from "../../data/state";
import type { AttentionMap } from "../../data/types";
import { Button } from "../../ui/button";
import { count, number } from "../../words";
import { HeatMap, painted } from "./heat-map";
import { LabelledSelect } from "./labelled-select";
import { visible } from "./results";
import { LIKENESS } from "./similarity";

const promptParam = pageParam("prompt", text, "");
const checkpointParam = pageParam("checkpoint", numberCodec, -1);
const layerParam = pageParam("layer", numberCodec, 0);
const headParam = pageParam("head", numberCodec, -1);
const LONGEST = 2000;
const FIRST_WORDS = "The quick brown fox jumps over the lazy dog, and the dog";
const SMALL = 116; // pixels of a head among others

interface Asked {
  map: AttentionMap | null;
  problem: string | null;
  isWaiting: boolean;
}
const NOT_ASKED: Asked = { map: null, problem: null, isWaiting: false };

/** What the heads of the run's model look at in a prompt: computed when it is asked for. */
export function AttentionView({ id }: { id: string }) {
  const { value: checkpoints } = useLoaded(id, "checkpoints", (run, signal) => source().checkpoints(run, signal), [
    "checkpoints",
  ]);
  const [typed, setTyped] = useState(promptParam.value || FIRST_WORDS);
  const [asked, setAsked] = useState(NOT_ASKED);
  const prompt = promptParam.value;
  const step = checkpointParam.value;
  const layer = layerParam.value;
  useEffect(() => {
    if (!prompt) {
      setAsked(NOT_ASKED); // Back, perhaps while an answer was awaited
      return;
    }
    const ended = new AbortController();
    setAsked((before) => ({ ...before, isWaiting: true }));
    const question = { prompt, layer: Math.max(0, layer), ...(step < 0 ? {} : { step }) };
    source()
      .attention(id, question, ended.signal)
      .then(
        (map) => setAsked({ map, problem: null, isWaiting: false }),
        (error: unknown) => {
          if (ended.signal.aborted) return;
          const problem = error instanceof Error ? error.message : String(error);
          setAsked({ map: null, problem, isWaiting: false });
        },
      );
    return () => ended.abort();
  }, [id, prompt, step, layer]);
  if (checkpoints?.length === 0) return <p class="dim">The run has no checkpoint to ask yet.</p>;
  const ask = () => {
    const wanted = typed.slice(0, LONGEST);
    if (wanted) promptParam.value = wanted;
  };
  return (
    <>
      <form
        class="attention-form"
        onSubmit={(event) => {
          event.preventDefault();
          ask();
        }}
      >
        <label>
          <span class="faint">a text (Enter looks, Shift+Enter begins a line)</span>
          <textarea
            class="field mono"
            rows={Math.min(8, typed.split("\n").length)}
            value={typed}
            maxLength={LONGEST}
            onInput={(event) => setTyped(event.currentTarget.value)}
            onKeyDown={(event) => {
              if (event.key !== "Enter" || event.shiftKey) return;
              event.preventDefault();
              ask();
            }}
          />
        </label>
        <LabelledSelect
          label="of step"
          value={step}
          options={[[-1, "the newest"], ...(checkpoints ?? []).map((one) => [one.step, count(one.step)] as const)]}
          onChange={(one) => {
            checkpointParam.value = Number(one);
          }}
        />
        <Button submit kind="main" disabled={!typed || asked.isWaiting}>
          Look
        </Button>
      </form>
      <div aria-live="polite">
        {asked.isWaiting && <p class="faint">computing: the first look at a text loads the model, some seconds …</p>}
        {asked.problem && !asked.isWaiting && <p class="warn">{asked.problem}</p>}
      </div>
      {!prompt && (
        <p class="dim">
          The model reads the text once, in a process of its own on the CPU; nothing is written into the run. In the
          terminal: <code>linnet attention {id} --prompt "…"</code>
        </p>
      )}
      {asked.map && prompt && <Maps map={asked.map} />}
    </>
  );
}

function Maps({ map }: { map: AttentionMap }) {
  const { tokens, heads, layers } = map;
  const head = headParam.value >= 0 && headParam.value < heads.length ? headParam.value : -1;
  const labels = useMemo(() => tokens.map((token) => visible(token)), [tokens]);
  const values = useMemo(() => masked(head < 0 ? meanOf(heads) : (heads[head] ?? [])), [heads, head]);
  return (
    <>
      <div class="toolbar">
        <LabelledSelect
          label="layer"
          value={map.layer}
          options={layers.map((layer) => [layer, layer] as const)}
          onChange={(layer) => {
            layerParam.value = Number(layer);
          }}
        />
        <span class="faint">
          layer {map.layer} of {layers.length} at step {count(map.step)}: {heads.length} heads, {tokens.length} tokens
        </span>
      </div>
      <div class="heads" role="group" aria-label="Heads">
        <HeadButton label="mean" weights={meanOf(heads)} on={head < 0} choose={() => headParam.replace(-1)} />
        {heads.map((weights, at) => (
          <HeadButton
            key={at}
            label={`head ${at}`}
            weights={weights}
            on={head === at}
            choose={() => headParam.replace(at)}
          />
        ))}
      </div>
      <HeatMap
        name={`attention-layer-${map.layer}`}
        quantity={head < 0 ? "attention, mean of the heads" : `attention of head ${head}`}
        rows={labels}
        columns={labels}
        rowsAre="token"
        columnsAre="looks at"
        turned
        values={values}
        scale={LIKENESS}
        cell={Math.max(6, Math.min(40, Math.floor(760 / Math.max(1, labels.length))))}
        valueText={({ row, column }) => number(values[row]?.[column] ?? null, 3)}
      />
      <p class="faint">
        Each row adds up to 1: how much the token on the left looks at each one before it, and at itself.
      </p>
    </>
  );
}

function HeadButton({
  label,
  weights,
  on,
  choose,
}: {
  label: string;
  weights: readonly (readonly number[])[];
  on: boolean;
  choose(): void;
}) {
  const colours = theme.value;
  const picture = useMemo(
    () =>
      painted(
        weights,
        weights.map(() => LIKENESS),
        colours,
      ),
    [weights, colours],
  );
  return (
    <button type="button" class="head" aria-pressed={on} onClick={choose}>
      {picture && <img src={picture} width={SMALL} height={SMALL} alt="" />}
      <span>{label}</span>
    </button>
  );
}

/** The mean of the heads. */
export function meanOf(heads: readonly (readonly (readonly number[])[])[]): number[][] {
  const [first] = heads;
  if (!first) return [];
  return first.map((row, r) =>
    row.map((_, c) => heads.reduce((sum, head) => sum + (head[r]?.[c] ?? 0), 0) / heads.length),
  );
}

/** What a token cannot look at, since it comes later, is no number. */
export function masked(weights: readonly (readonly number[])[]): number[][] {
  return weights.map((row, r) => row.map((weight, c) => (c > r && weight === 0 ? Number.NaN : weight)));
}
