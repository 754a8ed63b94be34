import { useMemo } from "preact/hooks";
import { choice, pageParam, setParams } from "../../address";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import type { InsideInfo } from "../../data/types";
import { Segmented } from "../../ui/segmented";
import { count, number } from "../../words";
import { LATEST, PageSteps, stepParam } from "../step-param";
import { layerParam, nameParam } from "./choice";
import { numbersOf } from "./colour-scale";
import { HeatMap } from "./heat-map";
import { LabelledSelect } from "./labelled-select";

const betweenParam = pageParam("between", choice("layers", "steps"), "layers");
const USUAL = "resid_post_block";
export const LIKENESS = { low: 0, high: 1, log: false } as const;

/** How alike layers see the probe text: the layers of one step, or one layer through the training. */
export function SimilarityView({ id, info }: { id: string; info: InsideInfo }) {
  const region =
    info.grams.find(({ name }) => name === nameParam.value) ??
    info.grams.find(({ name }) => name === USUAL) ??
    info.grams[0];
  const between = betweenParam.value;
  const layers = region?.layers ?? [];
  const layer = layers.includes(layerParam.value) ? layerParam.value : (layers.at(-1) ?? 0);
  const name = region?.name ?? "";
  const step = stepParam.value;
  const { value: newest } = useLoaded(
    id,
    `alike ${name}`,
    (run, signal) => source().insideSimilarity(run, { name }, signal),
    ["inside"],
  );
  const near = step === LATEST ? undefined : (newest?.steps.findLast((one) => one <= step) ?? newest?.steps[0]);
  const query = between === "steps" ? { name, layer } : { name, ...(near === undefined ? {} : { step: near }) };
  const { value, problem } = useLoaded(
    id,
    `alike ${JSON.stringify(query)}`,
    (run, signal) => source().insideSimilarity(run, query, signal),
    ["inside"],
  );
  const values = useMemo(() => numbersOf(value?.values ?? []), [value]);
  if (!region) return <p class="dim">No Gram matrices were told: they come with --inspect gram.</p>;
  return (
    <>
      <div class="toolbar">
        <Segmented
          label="What is compared"
          options={["layers", "steps"]}
          names={{ layers: "layers with each other", steps: "a layer through the training" }}
          value={between}
          onChange={(next) => {
            betweenParam.value = next;
          }}
        />
        <LabelledSelect
          label="region"
          value={name}
          options={info.grams.map((one) => [one.name, one.name] as const)}
          onChange={(one) => setParams({ region: one })}
        />
        {between === "steps" ? (
          <LabelledSelect
            label="layer"
            value={layer}
            options={layers.map((one) => [one, one] as const)}
            onChange={(one) => setParams({ layer: one })}
          />
        ) : (
          newest && <PageSteps label="likeness" steps={newest.steps} />
        )}
      </div>
      {value ? (
        <>
          <HeatMap
            name="likeness"
            quantity="CKA"
            rows={value.labels}
            columns={value.labels}
            rowsAre={between === "steps" ? "step" : "layer"}
            columnsAre={between === "steps" ? "step" : "layer"}
            values={values}
            scale={LIKENESS}
            cell={Math.max(8, Math.min(46, Math.floor(560 / Math.max(1, value.labels.length))))}
            valueText={({ row, column }) => number(values[row]?.[column] ?? null, 4)}
          />
          <p class="faint">
            Linear CKA, unbiased, of {name} on {count(value.samples)} held-out tokens or images: 1 is the same but for
            rotation and size, 0 nothing in common.
            {value.step !== null && ` At step ${count(value.step)}.`} <code>linnet cka</code> compares on more of them,
            and with other models.
          </p>
        </>
      ) : (
        <p class={problem ? "warn" : "loading"}>{problem ?? "comparing layers …"}</p>
      )}
    </>
  );
}
