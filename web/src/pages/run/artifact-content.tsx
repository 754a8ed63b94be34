import { useMemo } from "preact/hooks";
import { choice, pageParam } from "../../address";
import { useLoaded } from "../../data/loaded";
import { colourOf, source } from "../../data/state";
import type { ArtifactSeries } from "../../data/types";
import { Bars } from "../../ui/bars";
import { DataTable, rowCount } from "../../ui/data-table";
import { Segmented } from "../../ui/segmented";
import { compact, count, duration, number, plural, size } from "../../words";
import { compareSteps } from "../samples/timeline";
import { confusionOf } from "./confusion";
import { ConfusionView } from "./confusion-view";
import {
  type ArtifactItem,
  commonGrid,
  type HistogramContent,
  numericColumns,
  readHistogram,
  readTable,
  thinned,
} from "./media";

const MOST_STEPS = 60; // histograms that a heat map is made of
const LARGEST = 8_000_000; // bytes that are read into the page
const LONGEST_TEXT = 200_000; // characters on the page
const SMALL_IMAGE = 160; // pixels below which an image is enlarged

const zoomParam = pageParam("zoom", choice("fit", "1", "2", "4", "8"), "fit");

interface ContentProps {
  run: string;
  series: ArtifactSeries;
  item: ArtifactItem;
}

/** One artifact, shown as what it is; text from files is text, images are shown by `<img>` alone. */
export function ArtifactContent({ run, series, item }: ContentProps) {
  if (!source().holds(run, item.number)) {
    return <p class="dim">Not in this report: {factsOf(item).join(" · ")}. It is in the run’s folder.</p>;
  }
  const address = source().artifactAddress(run, item.number);
  const tooLarge = (item.bytes ?? 0) > LARGEST;
  return (
    <>
      {series.media === "image" ? (
        <Picture name={series.name} item={item} address={address} />
      ) : series.media === "audio" ? (
        <Sound item={item} address={address} name={series.name} />
      ) : series.media === "file" ? null : tooLarge ? (
        <p class="dim">{size(item.bytes)} are too much to show here.</p>
      ) : series.media === "histogram" ? (
        <Histograms run={run} series={series} item={item} />
      ) : (
        <TextOrTable run={run} series={series} item={item} />
      )}
      {item.caption && <p class="artifact-caption">{item.caption}</p>}
      <p class="artifact-facts">
        <a href={address} download={fileName(series.name, item)}>
          download
        </a>
        <span class="faint">{factsOf(item).join(" · ")}</span>
      </p>
    </>
  );
}

/** What its event says of it, in few words. */
export function factsOf(item: ArtifactItem): string[] {
  const { width, height, seconds, rate } = item.fields;
  const facts: string[] = [];
  if (typeof width === "number" && typeof height === "number") facts.push(`${count(width)} × ${count(height)}`);
  if (typeof seconds === "number") facts.push(duration(seconds));
  if (typeof rate === "number") facts.push(`${count(rate)} Hz`);
  if (typeof item.fields.count === "number") facts.push(`${compact(item.fields.count)} values`);
  if (item.bytes !== null) facts.push(size(item.bytes));
  return facts;
}

function fileName(name: string, item: ArtifactItem): string {
  const plain = name.replace(/[^\w.-]+/g, "-").slice(0, 80) || "artifact";
  return item.step === null ? plain : `step_${item.step}-${plain}`;
}

function Picture({ name, item, address }: { name: string; item: ArtifactItem; address: string }) {
  const { width } = item.fields;
  const pixels = typeof width === "number" ? width : null;
  if (!item.inline) return <p class="dim">This image is not shown: the board knows no such format.</p>;
  const zoom = zoomParam.value;
  const isSmall = pixels !== null && pixels <= SMALL_IMAGE;
  const style =
    zoom === "fit"
      ? isSmall && pixels
        ? { width: `${pixels * 4}px` }
        : {}
      : pixels
        ? { width: `${pixels * Number(zoom)}px`, maxWidth: "none" }
        : {};
  return (
    <>
      {pixels !== null && (
        <Segmented
          label="Size"
          options={["fit", "1", "2", "4", "8"]}
          names={{ "1": "1×", "2": "2×", "4": "4×", "8": "8×" }}
          value={zoom}
          onChange={(next) => {
            zoomParam.value = next;
          }}
        />
      )}
      <div class="picture">
        <img
          src={address}
          alt={item.caption ?? `${name}, step ${item.step ?? "–"}`}
          class={isSmall || Number(zoom) > 1 ? "pixels" : ""}
          style={style}
          decoding="async"
        />
      </div>
    </>
  );
}

function Sound({ name, item, address }: { name: string; item: ArtifactItem; address: string }) {
  return (
    // biome-ignore lint/a11y/useMediaCaption: what was logged has no captions
    <audio controls preload="none" src={address} aria-label={`${name}, step ${item.step ?? "–"}`} />
  );
}

function TextOrTable({ run, series, item }: ContentProps) {
  const { value, problem } = useLoaded(run, `artifact ${item.number}`, (id, signal) =>
    source().artifactText(id, item.number, signal),
  );
  if (value === null) return <p class={problem ? "bad" : "loading"}>{problem ?? "reading …"}</p>;
  return series.media === "table" ? (
    <LoggedTable name={series.name} content={value} mime={item.mime} />
  ) : (
    <LoggedText content={value} />
  );
}

function LoggedText({ content }: { content: string }) {
  const cut = content.length > LONGEST_TEXT;
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard */}
      <pre class="logged-text" tabIndex={0}>
        {cut ? content.slice(0, LONGEST_TEXT) : content}
      </pre>
      {cut && (
        <p class="faint">
          The first {plural(LONGEST_TEXT, "character")} of {count(content.length)}; the file has them all.
        </p>
      )}
    </>
  );
}

function LoggedTable({ name, content, mime }: { name: string; content: string; mime: string }) {
  const table = useMemo(() => {
    try {
      return readTable(content, mime);
    } catch (error) {
      return error instanceof Error ? error.message : String(error);
    }
  }, [content, mime]);
  const columns = useMemo(() => {
    if (typeof table === "string") return [];
    const numeric = numericColumns(table);
    return table.columns.map((column, index) => ({ name: column, numeric: numeric[index] ?? false }));
  }, [table]);
  if (typeof table === "string") return <p class="bad">{table}</p>;
  const confusion = confusionOf(table.columns, table.rows);
  return (
    <>
      {confusion && <ConfusionView confusion={confusion} />}
      <DataTable label={name} sortParam="order" columns={columns} rows={table.rows} height={18} />
      <p class="faint">{rowCount(table.rows.length, table.cut)}</p>
    </>
  );
}

/** The bars of one step, and how they became so: a heat map of the steps, evenly thinned where there are very many. */
function Histograms({ run, series, item }: ContentProps) {
  const items = useMemo(() => {
    const held = series.items.filter((one) => source().holds(run, one.number));
    return thinned(held, MOST_STEPS);
  }, [run, series]);
  const question = `histograms ${items.map(({ number: artifact }) => artifact).join(" ")} ${item.number}`;
  const { value, problem } = useLoaded(run, question, async (id, signal) => {
    const numbers = [...new Set([item.number, ...items.map(({ number: artifact }) => artifact)])];
    const read = await Promise.all(
      numbers.map(
        async (artifact) => [artifact, readHistogram(await source().artifactText(id, artifact, signal))] as const,
      ),
    );
    return new Map<number, HistogramContent>(read);
  });
  const now = value?.get(item.number);
  if (!value || !now) return <p class={problem ? "bad" : "loading"}>{problem ?? "reading …"}</p>;
  const drawn = items.flatMap((one) => {
    const histogram = value.get(one.number);
    return histogram ? [{ step: one.step, histogram }] : [];
  });
  return (
    <div class="histograms">
      <Bars
        counts={now.counts}
        edges={now.edges}
        label={`${series.name}, step ${item.step ?? "–"}`}
        colour={colourOf(run)}
        width={480}
        height={160}
      />
      {drawn.length > 1 && <HeatMap entries={drawn} step={item.step} colour={colourOf(run)} name={series.name} />}
    </div>
  );
}

interface HeatMapProps {
  entries: readonly { step: number | null; histogram: HistogramContent }[];
  step: number | null;
  colour: string;
  name: string;
}

function HeatMap({ entries, step, colour, name }: HeatMapProps) {
  const { low, high, shares } = useMemo(
    () => commonGrid(entries.map(({ histogram }) => histogram)),
    [entries.length, name],
  );
  const most = Math.max(...shares.flat(), 1e-12);
  const [width, height] = [480, 160];
  const [wide, tall] = [width / shares.length, height / (shares[0]?.length ?? 1)];
  const here = entries.findLastIndex((entry) => compareSteps(entry.step, step) <= 0);
  return (
    <svg
      class="bars heat"
      viewBox={`-46 -4 ${width + 50} ${height + 22}`}
      role="img"
      aria-label={`${name} over ${entries.length} steps, from ${number(low)} to ${number(high)}`}
    >
      {shares.map((column, x) =>
        column.map(
          (share, y) =>
            share > 0 && (
              <rect
                key={`${x} ${y}`}
                x={x * wide}
                y={height - (y + 1) * tall}
                width={wide}
                height={tall}
                fill={colour}
                opacity={0.06 + 0.94 * Math.sqrt(share / most)}
              />
            ),
        ),
      )}
      {here >= 0 && <rect x={here * wide} y={0} width={wide} height={height} fill="none" stroke="var(--ink)" />}
      <text x={-6} y={8} text-anchor="end">
        {number(high, 3)}
      </text>
      <text x={-6} y={height} text-anchor="end">
        {number(low, 3)}
      </text>
      <text x={0} y={height + 14}>
        {entries[0]?.step ?? "–"}
      </text>
      <text x={width} y={height + 14} text-anchor="end">
        {entries.at(-1)?.step ?? "–"}
      </text>
    </svg>
  );
}
