import { useMemo } from "preact/hooks";
import { setParams } from "../../address";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import type { InsideHistogram, InsideInfo, InsideMap, InsideTable, LoggedFigures } from "../../data/types";
import { Bars } from "../../ui/bars";
import { Segmented, Toggle } from "../../ui/segmented";
import { useWidth } from "../../ui/width";
import { asNumber, count, number, plural } from "../../words";
import { LATEST, stepParam } from "../step-param";
import {
  ALL,
  columnAt,
  FIGURES,
  figureParam,
  formParam,
  headsParam,
  layerParam,
  layersOf,
  type MapChoice,
  mapChoice,
  nameParam,
  rowAt,
  rowByRowParam,
  rowKey,
  rowParam,
  TABLES,
  tableParam,
} from "./choice";
import { numbersOf, scaleOf } from "./colour-scale";
import { HeatMap, type Place, stepsText } from "./heat-map";
import { LabelledSelect } from "./labelled-select";
import { RowCurve } from "./row-curve";

/** Any figure of any region as layers by steps; of the place that is chosen its curve and its histogram. */
export function LayersView({ id, info }: { id: string; info: InsideInfo }) {
  const asked: MapChoice = {
    table: tableParam.value,
    figure: figureParam.value,
    name: nameParam.value,
    layer: layerParam.value < 0 ? null : layerParam.value,
    heads: headsParam.value,
  };
  const shown = mapChoice(info, asked);
  if (!shown) return <p class="dim">No figures of layers were told.</p>;
  return (
    <>
      <MapChoices info={info} shown={shown} />
      <ChosenMap id={id} info={info} shown={shown} />
    </>
  );
}

function MapChoices({ info, shown }: { info: InsideInfo; shown: MapChoice }) {
  const tables = (Object.keys(TABLES) as InsideTable[]).filter((name) => info.tables[name]?.length);
  const regions = info.tables[shown.table] ?? [];
  const figuresOf = (region: LoggedFigures) => (shown.heads ? region.head_figures : region.figures);
  const figures = [...new Set(regions.flatMap(figuresOf))];
  const names = regions.filter((region) => figuresOf(region).includes(shown.figure));
  const layers = layersOf(names, shown.name);
  const hasHeads = regions.some((region) => region.head_figures.length > 0);
  return (
    <div class="toolbar">
      {tables.length > 1 && (
        <Segmented
          label="What is shown"
          options={tables}
          names={TABLES}
          value={shown.table}
          onChange={(table) => setParams({ of: table, figure: "", region: "", layer: "", heads: "", row: "" })}
        />
      )}
      <LabelledSelect
        label="figure"
        value={shown.figure}
        options={figures.map((figure) => [figure, FIGURES[figure] ?? figure] as const)}
        onChange={(figure) => {
          figureParam.value = figure;
        }}
      />
      <LabelledSelect
        label="of"
        value={shown.name}
        options={[[ALL, "everything"], ...names.map(({ name }) => [name, name] as const)]}
        onChange={(region) => setParams({ region, row: "" })}
      />
      {layers.length > 1 && (
        <LabelledSelect
          label="layer"
          value={shown.layer ?? ""}
          options={[...(shown.heads ? [] : [["", "all"] as const]), ...layers.map((layer) => [layer, layer] as const)]}
          onChange={(layer) => setParams({ layer, row: "" })}
        />
      )}
      {hasHeads && (
        <Toggle
          label="heads"
          on={shown.heads}
          onChange={(heads) => setParams({ heads: heads ? "1" : "", region: "", layer: "", row: "" })}
        />
      )}
      <span class="grow" />
      <Segmented
        label="Scale of colours"
        options={["auto", "linear", "log"]}
        value={formParam.value}
        onChange={(form) => {
          formParam.value = form;
        }}
      />
      <Toggle
        label="row by row"
        on={rowByRowParam.value}
        onChange={(on) => {
          rowByRowParam.value = on;
        }}
      />
    </div>
  );
}

function ChosenMap({ id, info, shown }: { id: string; info: InsideInfo; shown: MapChoice }) {
  const { table, figure, name, layer, heads } = shown;
  const query = {
    table,
    figure,
    heads,
    ...(name === ALL ? {} : { name }),
    ...(layer === null ? {} : { layer }),
  };
  const { value: map, problem } = useLoaded(
    id,
    JSON.stringify(query),
    (run, signal) => source().insideMap(run, query, signal),
    ["inside"],
  );
  if (!map) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading what was told …"}</p>;
  return <MapWithDetails id={id} info={info} map={map} shown={shown} />;
}

function MapWithDetails({ id, info, map, shown }: { id: string; info: InsideInfo; map: InsideMap; shown: MapChoice }) {
  const values = useMemo(() => numbersOf(map.values), [map]);
  const low = useMemo(() => (map.low ? numbersOf(map.low) : null), [map]);
  const high = useMemo(() => (map.high ? numbersOf(map.high) : null), [map]);
  const form = formParam.value;
  const scale = useMemo(() => scaleOf(values, form), [values, form]);
  const columns = map.begins.map((begin, at) => stepsText(begin, map.ends[at] ?? begin));
  const chosen: Place = {
    row: rowAt(map.rows, rowParam.value),
    column: columnAt(map.begins, stepParam.value === LATEST ? null : stepParam.value),
  };
  const row = map.rows[chosen.row];
  const choose = (place: Place) => {
    const isLast = place.column === map.begins.length - 1;
    const next = map.rows[place.row];
    setParams(
      {
        row: next && place.row > 0 ? rowKey(next) : "",
        step: isLast ? "" : String(map.begins[place.column] ?? ""),
      },
      { replace: true },
    );
  };
  const rowsAre = shown.heads ? "head" : shown.name === ALL || map.rows.length === 1 ? "" : "layer";
  const valueText = ({ row: r, column: c }: Place) => {
    const value = values[r]?.[c] ?? Number.NaN;
    if (Number.isNaN(value)) return "not told, or no number";
    const [least, most] = [low?.[r]?.[c], high?.[r]?.[c]];
    const range = least !== undefined && most !== undefined && least !== most;
    return range ? `${number(value, 6)} (${number(least)} to ${number(most)})` : number(value, 6);
  };
  if (!row) return <p class="dim">Nothing of that was told.</p>;
  const place = rowName(row.name, row.layer, row.head);
  return (
    <>
      <HeatMap
        name={`${shown.figure}-${shown.name === ALL ? shown.table : shown.name}`}
        quantity={FIGURES[shown.figure] ?? shown.figure}
        rows={map.rows.map(({ label }) => label)}
        columns={columns}
        rowsAre={rowsAre}
        columnsAre="step"
        values={values}
        scale={scale}
        rowByRow={rowByRowParam.value}
        valueText={valueText}
        chosen={chosen}
        onChoose={choose}
      />
      <p class="faint">
        {plural(map.looks, "look")} at {plural(map.rows.length, "row")}
        {map.low && "; of several looks in a column its colour is that of the one that stands out most"}
        {map.left_out > 0 && `; ${count(map.left_out)} more rows: choose a layer or a region`}
      </p>
      <div class="inside-details">
        <section class="card" aria-label="Over the steps">
          <h3>
            {place} <em>{FIGURES[shown.figure] ?? shown.figure}, over the steps</em>
          </h3>
          <RowCurve
            label={`${FIGURES[shown.figure] ?? shown.figure} of ${place}`}
            begins={map.begins}
            ends={map.ends}
            values={values[chosen.row] ?? []}
            low={low?.[chosen.row] ?? null}
            high={high?.[chosen.row] ?? null}
            form={form}
            chosen={chosen.column}
            onChoose={(column) => choose({ row: chosen.row, column })}
          />
        </section>
        {shown.table === "taps" && info.tables.taps?.find(({ name }) => name === row.name)?.histogram && (
          <HistogramCard
            id={id}
            name={row.name}
            layer={row.layer}
            step={map.begins[chosen.column] ?? 0}
            last={map.ends[chosen.column] ?? 0}
          />
        )}
      </div>
    </>
  );
}

/** How a row is called in words: "ffn_out of layer 3, head 2". */
export function rowName(name: string, layer: number | null, head: number | null): string {
  return `${name}${layer === null ? "" : ` of layer ${layer}`}${head === null ? "" : `, head ${head}`}`;
}

function HistogramCard({
  id,
  name,
  layer,
  step,
  last,
}: {
  id: string;
  name: string;
  layer: number | null;
  step: number;
  last: number;
}) {
  const query = { name, step, ...(layer === null ? {} : { layer }) };
  const { value, problem } = useLoaded(id, `histogram ${JSON.stringify(query)}`, (run, signal) =>
    source().insideHistograms(run, query, signal),
  );
  const histogram = value?.histograms[0];
  return (
    <section class="card" aria-label="Histogram">
      <h3>
        {rowName(name, layer, null)} <em>at step {count(step)}</em>
      </h3>
      {histogram ? (
        <Histogram histogram={histogram} label={rowName(name, layer, null)} />
      ) : (
        <p class="faint">{problem ?? "…"}</p>
      )}
      {last > step && <p class="faint">The first of the looks from {stepsText(step, last)}.</p>}
    </section>
  );
}

function Histogram({ histogram, label }: { histogram: InsideHistogram; label: string }) {
  const [box, room] = useWidth<HTMLDivElement>(480);
  const edges = edgesOf(histogram);
  const total = histogram.counts.reduce((sum, amount) => sum + amount, 0);
  return (
    <>
      <div ref={box}>
        <Bars
          counts={histogram.counts}
          edges={edges}
          width={room}
          height={168}
          label={`How the numbers of ${label} are spread`}
        />
      </div>
      <p class="faint">
        {count(total)} numbers from {number(edges[0] ?? null, 3)} to {number(edges.at(-1) ?? null, 3)}; what lies beyond
        five deviations is in the outer bins
      </p>
    </>
  );
}

/** Between the bins of a histogram, and at its ends. */
export function edgesOf({ low, high, counts }: InsideHistogram): number[] {
  const [first, last] = [asNumber(low), asNumber(high)];
  return Array.from({ length: counts.length + 1 }, (_, at) => first + ((last - first) * at) / counts.length);
}
