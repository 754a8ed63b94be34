import { useMemo } from "preact/hooks";
import { useLoaded } from "../../data/loaded";
import { source, theme } from "../../data/state";
import type { InsideInfo } from "../../data/types";
import { number } from "../../words";
import { type FlowItem, parseFlow } from "../run/flow";
import { FlowGraphView } from "../run/flow-view";
import { LATEST, PageSteps, stepParam } from "../step-param";
import { columnAt, FIGURES, figureParam } from "./choice";
import { colourAt, scaleOf, shareOf } from "./colour-scale";
import { boxText, figuresAt, figuresOfBox, millis, timesByPart, timesOfBox } from "./graph-notes";
import { LabelledSelect } from "./labelled-select";

const USUAL = "std";
const NONE = "var(--line)";
const MANY_COLUMNS = 1000;

/** The model as a graph whose boxes tell what went through them, and how long they took. */
export function GraphView({ id, info }: { id: string; info: InsideInfo }) {
  const figures = [...new Set((info.tables.taps ?? []).flatMap((one) => one.figures))];
  const figure = figures.includes(figureParam.value) ? figureParam.value : figures.includes(USUAL) ? USUAL : figures[0];
  const { value: flow, problem } = useLoaded(id, "flow", async (run, signal) =>
    parseFlow(await source().flow(run, signal)),
  );
  const { value: map } = useLoaded(
    id,
    `all ${figure}`,
    async (run, signal) =>
      figure === undefined ? null : source().insideMap(run, { table: "taps", figure, columns: MANY_COLUMNS }, signal),
    ["inside"],
  );
  const steps = map?.begins ?? [];
  const asked = stepParam.value === LATEST ? null : stepParam.value;
  const timed = info.looks.regions;
  const timedStep = timed && asked !== null ? Math.max(timed.first, asked) : undefined;
  const { value: times } = useLoaded(
    id,
    `times ${timed?.last} ${timedStep}`,
    async (run, signal) => {
      if (!timed) return null;
      const newest = await source().insideRegions(run, undefined, signal);
      const near = newest.steps.findLast((step) => timedStep === undefined || step <= timedStep);
      return near === undefined || near === newest.step ? newest : source().insideRegions(run, near, signal);
    },
    ["inside"],
  );
  const regionFigures = useMemo(() => (map ? figuresAt(map, columnAt(map.begins, asked)) : []), [map, asked]);
  const parts = useMemo(() => (times ? timesByPart(times.root) : null), [times]);
  const scale = useMemo(() => scaleOf([regionFigures.map(({ value }) => value)], "auto"), [regionFigures]);
  if (!flow) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading the model …"}</p>;
  const noTimes = { forward: null, backward: null };
  const noteOf = (item: FlowItem) => {
    const own = figuresOfBox(item, regionFigures);
    const text = boxText(own, parts ? timesOfBox(item, parts) : noTimes, figure ?? "");
    if (!text) return null;
    const last = own.at(-1);
    return { text, colour: last ? colourAt(shareOf(scale, last.value), theme.value) : NONE };
  };
  const detailsOf = (item: FlowItem) => {
    const own = figuresOfBox(item, regionFigures);
    const { forward, backward } = parts ? timesOfBox(item, parts) : noTimes;
    if (!own.length && forward === null && backward === null) return null;
    return (
      <dl class="facts inside-facts">
        {own.map(({ name, layer, value }) => (
          <FactPair
            key={`${name} ${layer}`}
            name={`${name}${layer === null ? "" : `.${layer}`}`}
            text={number(value, 5)}
          />
        ))}
        {forward !== null && <FactPair name="forwards" text={millis(forward)} />}
        {backward !== null && <FactPair name="backwards" text={millis(backward)} />}
      </dl>
    );
  };
  const tools = (
    <>
      {figure !== undefined && (
        <LabelledSelect
          label="figure"
          value={figure}
          options={figures.map((one) => [one, FIGURES[one] ?? one] as const)}
          onChange={(one) => {
            figureParam.value = one;
          }}
        />
      )}
      {steps.length > 0 && <PageSteps label="looks" steps={steps} />}
    </>
  );
  return <FlowGraphView flow={flow} noteOf={noteOf} detailsOf={detailsOf} tools={tools} />;
}

function FactPair({ name, text }: { name: string; text: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{text}</dd>
    </>
  );
}
