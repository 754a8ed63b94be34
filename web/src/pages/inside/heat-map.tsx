import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { theme } from "../../data/state";
import { PictureMenu } from "../../ui/picture-menu";
import { useWidth } from "../../ui/width";
import { count, exact, number } from "../../words";
import { type ColourScale, colourAt, inkAt, rgbAt, scaleOf, shareOf } from "./colour-scale";

export interface Place {
  row: number;
  column: number;
}

export interface HeatMapProps {
  /** What a number is: "std". */
  quantity: string;
  rows: readonly string[];
  columns: readonly string[];
  /** NaN where there is none. */
  values: readonly (readonly number[])[];
  /** What the rows and the columns are: "layer", "step". */
  rowsAre: string;
  columnsAre: string;
  /** How colours follow the numbers; by default from the least to the greatest. */
  scale?: ColourScale;
  /** Each row has a scale of its own. */
  rowByRow?: boolean;
  /** What the line below says of a place, behind its row and column. */
  valueText?: (place: Place) => string;
  chosen?: Place | null;
  onChoose?: (place: Place) => void;
  /** As many pixels as cells need, at most so many each; else as wide as there is room. */
  cell?: number;
  /** Labels of columns stand on end, one for each column. */
  turned?: boolean;
  name: string;
}

const GAP = 6;
const TOP = 6;
const FOOT = 34;
const LETTER = 6.6; // pixels, about
const WIDEST_LABEL = 190;
const TALLEST_LABEL = 16; // letters of a label that stands on end
const TALLEST = 26;
const SMALLEST = 3;
const MOST_TALL = 560; // pixels of a map with many rows, before rows get SMALLEST
const LABEL_FROM = 12; // pixels of a row from which on each has its label
const TEXT_FROM = [30, 15] as const; // pixels of a cell from which on its number stands in it
const MOST_TEXTS = 1000;
const TICK = 64; // pixels that a label of a column takes

/** A table of numbers as colours: the value at the cursor, a place that is chosen by a click or by the arrows. */
export function HeatMap(props: HeatMapProps) {
  const { rows, columns, values, quantity, chosen, onChoose } = props;
  const [box, room] = useWidth<HTMLDivElement>(720);
  const [pointed, setPointed] = useState<Place | null>(null);
  const [isMoved, setMoved] = useState(false); // by the keyboard: then the line below is spoken
  const picture = useRef<SVGSVGElement>(null);
  const letters = Math.max(1, ...rows.map((row) => row.length));
  const gutter = Math.ceil(Math.min(WIDEST_LABEL, room * 0.36, 14 + LETTER * letters));
  const free = Math.max(60, room - gutter - 2);
  const across = Math.min(props.cell ?? Number.POSITIVE_INFINITY, free / Math.max(1, columns.length));
  const down = props.cell
    ? Math.min(props.cell, Math.max(SMALLEST, across))
    : Math.max(SMALLEST, Math.min(TALLEST, MOST_TALL / Math.max(1, rows.length)));
  const foot = props.turned ? 26 + LETTER * Math.min(TALLEST_LABEL, longest([columns])) : FOOT;
  const [width, height] = [across * columns.length, down * rows.length];
  const scales = useMemo(() => scalesOf(props), [values, props.scale, props.rowByRow]);
  const colours = theme.value;
  const image = useMemo(() => painted(values, scales, colours), [values, scales, colours]);
  useEffect(() => setPointed(null), [rows.length, columns.length]);

  const placeAt = (event: MouseEvent): Place | null => {
    const bounds = picture.current?.getBoundingClientRect();
    if (!bounds) return null;
    const column = Math.floor((event.clientX - bounds.left - gutter) / across);
    const row = Math.floor((event.clientY - bounds.top - TOP) / down);
    if (row < 0 || row >= rows.length || column >= columns.length) return null;
    return { row, column: column < 0 ? (chosen?.column ?? columns.length - 1) : column }; // a label is its row
  };
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, [number, number]> = {
      ArrowLeft: [0, -1],
      ArrowRight: [0, 1],
      ArrowUp: [-1, 0],
      ArrowDown: [1, 0],
      Home: [0, -columns.length],
      End: [0, columns.length],
    };
    const by = steps[event.key];
    if (!by || !onChoose || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const from = chosen ?? { row: 0, column: 0 };
    const within = (at: number, most: number) => Math.max(0, Math.min(most - 1, at));
    setPointed(null);
    setMoved(true);
    onChoose({ row: within(from.row + by[0], rows.length), column: within(from.column + by[1], columns.length) });
  };
  const shown = pointed ?? chosen ?? null;
  const everyRow = Math.max(1, Math.ceil(LABEL_FROM / down));
  const everyColumn = Math.max(1, Math.ceil(Math.max(TICK * 0.4, labelWidth(columns)) / across));
  const cells = useMemo(() => cellTexts(values), [values]);
  const hasRoom = across >= TEXT_FROM[0] && down >= TEXT_FROM[1] && rows.length * columns.length <= MOST_TEXTS;
  const numbered = hasRoom && longest(cells) * LETTER + 4 <= across;
  const summary = `${quantity} by ${props.rowsAre} and ${props.columnsAre}: ${rows.length} by ${columns.length}`;
  return (
    <figure class="heat">
      <div class="heat-head">
        <Legend quantity={quantity} scale={scales[0]} rowByRow={props.rowByRow ?? false} />
        <PictureMenu
          picture={() => picture.current}
          name={props.name}
          table={() => [[props.rowsAre, ...columns], ...values.map((row, at) => [rows[at], ...row.map(cellOf)])]}
        />
      </div>
      <div ref={box}>
        <svg
          ref={picture}
          class={onChoose ? "choosable" : ""}
          width={gutter + width + 2}
          height={TOP + height + foot}
          tabindex={onChoose ? 0 : undefined}
          role={onChoose ? "application" : "img"}
          aria-label={onChoose ? `${summary}; the arrows move through it` : summary}
          onMouseMove={(event) => {
            setMoved(false);
            setPointed(placeAt(event));
          }}
          onMouseLeave={() => setPointed(null)}
          onClick={(event) => {
            const place = placeAt(event);
            if (place) onChoose?.(place);
          }}
          onKeyDown={move}
        >
          <rect x={gutter} y={TOP} width={width} height={height} fill="var(--raise)" />
          {image && (
            <image
              x={gutter}
              y={TOP}
              width={width}
              height={height}
              href={image}
              preserveAspectRatio="none"
              style="image-rendering: pixelated"
            />
          )}
          {numbered &&
            values.map((row, r) =>
              row.map((value, c) => {
                const scale = scales[r];
                const share = scale ? shareOf(scale, value) : Number.NaN;
                const text = cells[r]?.[c] ?? "";
                return Number.isNaN(value) ? null : (
                  <text
                    key={`${r} ${c}`}
                    class="in-cell"
                    x={gutter + across * (c + 0.5)}
                    y={TOP + down * (r + 0.5)}
                    text-anchor="middle"
                    dominant-baseline="central"
                    style={{ fill: inkAt(share, colours) }}
                  >
                    {text}
                  </text>
                );
              }),
            )}
          {rows.map((row, at) =>
            at % everyRow ? null : (
              <text
                key={`${row} ${at}`}
                x={gutter - GAP}
                y={TOP + down * (at + 0.5)}
                text-anchor="end"
                dominant-baseline="central"
              >
                {clipped(row, (gutter - 12) / LETTER)}
              </text>
            ),
          )}
          {columns.map((column, at) =>
            props.turned ? (
              at % Math.ceil(LABEL_FROM / across) === 0 && (
                <text
                  key={`${column} ${at}`}
                  transform={`translate(${gutter + across * (at + 0.5)} ${TOP + height + 6}) rotate(-90)`}
                  text-anchor="end"
                  dominant-baseline="central"
                >
                  {clipped(column, TALLEST_LABEL)}
                </text>
              )
            ) : at % everyColumn ? null : (
              <text
                key={`${column} ${at}`}
                x={gutter + across * (at + 0.5)}
                y={TOP + height + 13}
                text-anchor={anchorOf(at, columns.length, across, column)}
              >
                {column}
              </text>
            ),
          )}
          <text class="axis" x={gutter + width / 2} y={TOP + height + foot - 5} text-anchor="middle">
            {props.columnsAre}
          </text>
          {chosen && (
            <rect
              class="chosen"
              x={gutter + across * chosen.column - 0.5}
              y={TOP + down * chosen.row - 0.5}
              width={across + 1}
              height={down + 1}
            />
          )}
          {pointed && (
            <rect
              class="pointed"
              x={gutter + across * pointed.column}
              y={TOP + down * pointed.row}
              width={across}
              height={down}
            />
          )}
        </svg>
      </div>
      <figcaption class="heat-told" aria-live={isMoved ? "polite" : "off"}>
        {shown ? placeText(props, shown) : " "}
      </figcaption>
    </figure>
  );
}

function placeText(props: HeatMapProps, place: Place): string {
  const value = props.values[place.row]?.[place.column] ?? Number.NaN;
  const row = `${props.rowsAre} ${props.rows[place.row] ?? ""}`;
  const text = props.valueText?.(place) ?? (Number.isNaN(value) ? "no number" : number(value, 6));
  return `${row.trim()} · ${props.columnsAre} ${props.columns[place.column] ?? ""}: ${text}`;
}

/** The colours with their numbers: the least, the middle, the greatest. */
function Legend({
  quantity,
  scale,
  rowByRow,
}: {
  quantity: string;
  scale: ColourScale | undefined;
  rowByRow: boolean;
}) {
  if (!scale) return null;
  const stops = [0, 0.25, 0.5, 0.75, 1];
  const ramp = stops.map((at) => colourAt(at, theme.value)).join(", ");
  const middle = scale.log ? Math.sqrt(scale.low * scale.high) : (scale.low + scale.high) / 2;
  const ends = rowByRow
    ? ["least of the row", "", "greatest"]
    : [scale.low, middle, scale.high].map((at) => number(at, 3));
  return (
    <div class="legend-scale">
      <b>{quantity}</b>
      <span>
        <span class="ramp" style={{ background: `linear-gradient(to right, ${ramp})` }} aria-hidden="true" />
        <span class="ramp-ends">
          {ends.map((end, at) => (
            <span key={at}>{end}</span>
          ))}
        </span>
      </span>
      {scale.log && !rowByRow && <span class="faint">logarithmic</span>}
    </div>
  );
}

function scalesOf({ values, scale, rowByRow }: HeatMapProps): ColourScale[] {
  if (rowByRow) return values.map((row) => scaleOf([row], scale?.log ? "log" : "linear"));
  const whole = scale ?? scaleOf(values, "linear");
  return values.map(() => whole);
}

/** The cells as a picture of a pixel each; null where there is nothing to paint on. */
export function painted(
  values: readonly (readonly number[])[],
  scales: readonly ColourScale[],
  colours: "light" | "dark",
): string | null {
  const width = values[0]?.length ?? 0;
  if (!width) return null;
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = values.length;
  const context = canvas.getContext("2d");
  if (!context) return null;
  const pixels = context.createImageData(width, values.length);
  values.forEach((row, r) => {
    const scale = scales[r];
    row.forEach((value, c) => {
      const share = scale ? shareOf(scale, value) : Number.NaN;
      if (!Number.isNaN(share)) pixels.data.set([...rgbAt(share, colours), 255], 4 * (r * width + c));
    });
  });
  context.putImageData(pixels, 0, 0);
  return canvas.toDataURL();
}

/** Labels at the ends of the axis do not stand out of the picture. */
function anchorOf(at: number, count: number, across: number, label: string): "start" | "middle" | "end" {
  const half = (LETTER * label.length) / 2;
  if (across * (at + 0.5) < half / 2) return "start";
  return across * (count - at - 0.5) < half ? "end" : "middle";
}

function cellTexts(values: HeatMapProps["values"]): string[][] {
  return values.map((row) => row.map((value) => (Number.isNaN(value) ? "" : number(value, 2))));
}

function longest(texts: readonly (readonly string[])[]): number {
  return texts.reduce((most, row) => row.reduce((longer, text) => Math.max(longer, text.length), most), 0);
}

function labelWidth(labels: readonly string[]): number {
  return 10 + LETTER * Math.max(1, ...labels.map((label) => label.length));
}

function clipped(text: string, most: number): string {
  return text.length > most ? `${text.slice(0, Math.max(1, Math.floor(most) - 1))}…` : text;
}

const cellOf = (value: number) => (Number.isFinite(value) ? value : Number.isNaN(value) ? null : exact(value));

/** How a stretch of steps is called: one step, or the first and the last. */
export function stepsText(begin: number, end: number): string {
  return begin === end ? count(begin) : `${count(begin)}–${count(end)}`;
}
