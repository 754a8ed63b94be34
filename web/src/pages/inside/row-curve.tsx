import { roundNumbers } from "../../charts/scale";
import { useWidth } from "../../ui/width";
import { count, number } from "../../words";
import { type ColourScale, scaleOf, shareOf } from "./colour-scale";

interface RowCurveProps {
  label: string;
  begins: readonly number[];
  ends: readonly number[];
  values: readonly number[];
  /** The range of each column, where columns have several looks. */
  low: readonly number[] | null;
  high: readonly number[] | null;
  form: "auto" | "linear" | "log";
  chosen: number;
  onChoose(column: number): void;
}

const [LEFT, RIGHT, TOP, HEIGHT, FOOT] = [54, 18, 8, 168, 20];

/** A row of a heat map as a curve over the steps; a click chooses a step. */
export function RowCurve({ label, begins, ends, values, low, high, form, chosen, onChoose }: RowCurveProps) {
  const [box, room] = useWidth<HTMLDivElement>(480);
  const scale = scaleOf([values, low ?? [], high ?? []], form);
  const [first, last] = [begins[0] ?? 0, ends.at(-1) ?? 1];
  const width = Math.max(80, room - LEFT - RIGHT);
  const xOf = (step: number) => LEFT + (last > first ? (step - first) / (last - first) : 0.5) * width;
  const yOf = (value: number) => TOP + (1 - shareOf(scale, value)) * HEIGHT;
  const middle = (column: number) => ((begins[column] ?? 0) + (ends[column] ?? 0)) / 2;
  const ticks = ticksOf(scale);
  return (
    <div ref={box}>
      <svg
        class="row-curve"
        width={room}
        height={TOP + HEIGHT + FOOT}
        role="img"
        aria-label={`${label} over the steps, from ${number(values[0] ?? null)} to ${number(values.at(-1) ?? null)}`}
        onClick={(event) => {
          const at = (event.clientX - event.currentTarget.getBoundingClientRect().left - LEFT) / width;
          onChoose(
            nearest(
              begins.map((_, column) => middle(column)),
              first + at * (last - first),
            ),
          );
        }}
      >
        {ticks.map((tick) => (
          <g key={tick}>
            <line x1={LEFT} x2={LEFT + width} y1={yOf(tick)} y2={yOf(tick)} stroke="var(--line)" />
            <text x={LEFT - 6} y={yOf(tick)} text-anchor="end" dominant-baseline="central">
              {number(tick, 3)}
            </text>
          </g>
        ))}
        {roundNumbers(first, last, Math.max(2, Math.floor(width / 110))).map((step) => (
          <text key={step} x={xOf(step)} y={TOP + HEIGHT + 15} text-anchor="middle">
            {count(step)}
          </text>
        ))}
        {low && high && (
          <path
            class="band"
            d={bandPath(
              begins.map((_, at) => xOf(middle(at))),
              low.map(yOf),
              high.map(yOf),
            )}
          />
        )}
        <path class="line" d={linePath(values.map((value, at) => [xOf(middle(at)), yOf(value)]))} />
        {begins.length <= 60 &&
          values.map((value, at) =>
            Number.isNaN(value) ? null : <circle key={at} cx={xOf(middle(at))} cy={yOf(value)} r={2} />,
          )}
        {begins[chosen] !== undefined && (
          <>
            <line class="at" x1={xOf(middle(chosen))} x2={xOf(middle(chosen))} y1={TOP} y2={TOP + HEIGHT} />
            {!Number.isNaN(values[chosen] ?? Number.NaN) && (
              <circle class="at" cx={xOf(middle(chosen))} cy={yOf(values[chosen] ?? 0)} r={4} />
            )}
          </>
        )}
      </svg>
    </div>
  );
}

/** A line that ends where there is no number, and goes on behind it. */
export function linePath(points: readonly (readonly [number, number])[]): string {
  let path = "";
  let isBroken = true;
  for (const [x, y] of points) {
    if (!Number.isFinite(y)) {
      isBroken = true;
      continue;
    }
    path += `${isBroken ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
    isBroken = false;
  }
  return path;
}

function bandPath(x: readonly number[], low: readonly number[], high: readonly number[]): string {
  const known = x.flatMap((_, index) => (Number.isFinite(low[index]) && Number.isFinite(high[index]) ? [index] : []));
  if (known.length < 2) return "";
  const forth = known.map((index) => `${x[index]?.toFixed(1)} ${high[index]?.toFixed(1)}`);
  const back = known.reverse().map((index) => `${x[index]?.toFixed(1)} ${low[index]?.toFixed(1)}`);
  return `M${[...forth, ...back].join("L")}Z`;
}

/** Round numbers of a scale; of a logarithmic one powers of ten, or its ends. */
export function ticksOf({ low, high, log }: ColourScale): number[] {
  if (!log) {
    const ticks = high > low ? roundNumbers(low, high, 4) : [low];
    return ticks.length ? ticks : [low, high];
  }
  const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
  const every = Math.max(1, Math.ceil((last - first) / 5));
  const powers: number[] = [];
  for (let power = first; power <= last; power += every) powers.push(Number(`1e${power}`));
  return powers.length > 1 ? powers : [low, high];
}

function nearest(numbers: readonly number[], wanted: number): number {
  let best = 0;
  numbers.forEach((value, at) => {
    if (Math.abs(value - wanted) < Math.abs((numbers[best] ?? 0) - wanted)) best = at;
  });
  return best;
}
