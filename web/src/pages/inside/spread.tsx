import { useMemo, useRef, useState } from "preact/hooks";
import { setParams } from "../../address";
import { roundNumbers } from "../../charts/scale";
import { useLoaded } from "../../data/loaded";
import { source, theme } from "../../data/state";
import type { InsideHistogram, InsideInfo } from "../../data/types";
import { PictureMenu } from "../../ui/picture-menu";
import { useWidth } from "../../ui/width";
import { count, number, plural } from "../../words";
import { layerParam, nameParam } from "./choice";
import { colourAt } from "./colour-scale";
import { LabelledSelect } from "./labelled-select";
import { edgesOf, rowName } from "./layers";

const [LEFT, RIGHT, FOOT] = [64, 12, 24];
const TALL = 54; // pixels of the highest point of a ridge
const APART = 13;
const USUAL = "resid_post_block";

/** How the numbers of a region were spread, step by step: the oldest at the back, the newest in front. */
export function SpreadView({ id, info }: { id: string; info: InsideInfo }) {
  const regions = (info.tables.taps ?? []).filter(({ histogram }) => histogram);
  const usual = regions.find(({ name }) => name === USUAL) ?? regions[0];
  const region = regions.find(({ name }) => name === nameParam.value) ?? usual;
  if (!region) return <p class="dim">No histograms were told: they come with --inspect taps.</p>;
  const last = region.layers.at(-1) ?? null;
  const layer = region.layers.includes(layerParam.value) ? layerParam.value : last;
  return (
    <>
      <div class="toolbar">
        <LabelledSelect
          label="region"
          value={region.name}
          options={regions.map(({ name }) => [name, name] as const)}
          onChange={(name) => setParams({ region: name })}
        />
        {region.layers.length > 1 && (
          <LabelledSelect
            label="layer"
            value={layer ?? ""}
            options={region.layers.map((one) => [one, one] as const)}
            onChange={(one) => setParams({ layer: one })}
          />
        )}
      </div>
      <Ridges id={id} name={region.name} layer={layer} />
    </>
  );
}

function Ridges({ id, name, layer }: { id: string; name: string; layer: number | null }) {
  const query = { name, ...(layer === null ? {} : { layer }) };
  const { value, problem } = useLoaded(
    id,
    `ridges ${JSON.stringify(query)}`,
    (run, signal) => source().insideHistograms(run, query, signal),
    ["inside"],
  );
  if (!value) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading histograms …"}</p>;
  return <RidgePlot histograms={value.histograms} looks={value.looks} label={rowName(name, layer, null)} />;
}

interface Ridge {
  step: number;
  path: string;
  base: number;
}

function RidgePlot({
  histograms,
  looks,
  label,
}: {
  histograms: readonly InsideHistogram[];
  looks: number;
  label: string;
}) {
  const [box, room] = useWidth<HTMLDivElement>(720);
  const [pointed, setPointed] = useState<number | null>(null);
  const picture = useRef<SVGSVGElement>(null);
  const width = Math.max(120, Math.min(room, 980) - LEFT - RIGHT);
  const [low, high] = useMemo(() => reach(histograms), [histograms]);
  const ridges = useMemo(() => ridgesOf(histograms, low, high, width), [histograms, low, high, width]);
  const height = TALL + APART * Math.max(0, histograms.length - 1) + 8;
  const xOf = (value: number) => LEFT + ((value - low) / (high - low || 1)) * width;
  const every = Math.max(1, Math.ceil(14 / APART));
  const shown = pointed === null ? null : histograms[pointed];
  return (
    <figure class="heat">
      <div class="heat-head">
        <span class="dim">
          {label}: {plural(looks, "look")}
          {looks > histograms.length && `, of which ${count(histograms.length)} are shown: the widest of each stretch`}
        </span>
        <PictureMenu
          picture={() => picture.current}
          name={`spread-${label.replaceAll(" ", "-")}`}
          table={() => [
            ["step", "from", "to", ...(histograms[0]?.counts.map((_, at) => `bin ${at + 1}`) ?? [])],
            ...histograms.map((one) => [one.step, one.low, one.high, ...one.counts]),
          ]}
        />
      </div>
      <div ref={box}>
        <svg
          ref={picture}
          class="ridges"
          width={LEFT + width + RIGHT}
          height={height + FOOT}
          role="img"
          aria-label={`Histograms of ${label} over ${looks} looks`}
          onMouseMove={(event) => {
            const y = event.clientY - event.currentTarget.getBoundingClientRect().top;
            const at = ridges.findIndex(({ base }) => y <= base);
            setPointed(at < 0 ? null : at);
          }}
          onMouseLeave={() => setPointed(null)}
        >
          {roundNumbers(low, high, Math.max(2, Math.floor(width / 90))).map((value) => (
            <g key={value}>
              <line x1={xOf(value)} x2={xOf(value)} y1={4} y2={height} stroke="var(--line)" />
              <text x={xOf(value)} y={height + 16} text-anchor="middle">
                {number(value, 3)}
              </text>
            </g>
          ))}
          {ridges.map(({ step, path, base }, at) => (
            <g key={step} class={at === pointed ? "on" : ""}>
              <path
                class="ridge"
                d={path}
                transform={`translate(${LEFT} ${base})`}
                fill={colourAt(0.25 + (0.65 * at) / Math.max(1, ridges.length - 1), theme.value)}
              />
              {(at % every === 0 || at === ridges.length - 1) && (
                <text x={LEFT - 8} y={base} text-anchor="end" dominant-baseline="central">
                  {count(step)}
                </text>
              )}
            </g>
          ))}
        </svg>
      </div>
      <figcaption class="heat-told">
        {shown
          ? `step ${count(shown.step)}: from ${number(shown.low, 4)} to ${number(shown.high, 4)}`
          : "Each ridge is as high as the others: its shape counts. The oldest look is at the back."}
      </figcaption>
    </figure>
  );
}

/** From where to where the histograms reach. */
export function reach(histograms: readonly InsideHistogram[]): [number, number] {
  let [low, high] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
  for (const histogram of histograms) {
    const edges = edgesOf(histogram);
    const [first = Number.NaN, last = Number.NaN] = [edges[0], edges.at(-1)];
    if (Number.isFinite(first)) low = Math.min(low, first);
    if (Number.isFinite(last)) high = Math.max(high, last);
  }
  if (low < high) return [low, high];
  return Number.isFinite(low) ? [low - 1, low + 1] : [-1, 1];
}

/** Each histogram as an outline above its base, all equally high. */
export function ridgesOf(histograms: readonly InsideHistogram[], low: number, high: number, width: number): Ridge[] {
  return histograms.map((histogram, at) => {
    const edges = edgesOf(histogram);
    const most = Math.max(1, ...histogram.counts);
    const xOf = (value: number) => ((value - low) / (high - low || 1)) * width;
    const points = histogram.counts.map((amount, bin) => {
      const middle = ((edges[bin] ?? 0) + (edges[bin + 1] ?? 0)) / 2;
      return `${xOf(middle).toFixed(1)} ${(-(TALL - 4) * (amount / most)).toFixed(1)}`;
    });
    const [first, last] = [xOf(edges[0] ?? 0).toFixed(1), xOf(edges.at(-1) ?? 0).toFixed(1)];
    const path = Number.isFinite(Number(first)) ? `M${first} 0L${points.join("L")}L${last} 0Z` : "";
    return { step: histogram.step, path, base: TALL + APART * at };
  });
}
