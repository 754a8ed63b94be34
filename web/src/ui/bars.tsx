import { number } from "../words";
import "./bars.css";

interface BarsProps {
  counts: readonly number[];
  edges: readonly number[];
  label: string;
  colour?: string;
  width?: number;
  height?: number;
}

/** A histogram as bars, with its ends and its middle below. */
export function Bars({ counts, edges, label, colour = "var(--accent)", width = 320, height = 96 }: BarsProps) {
  const most = Math.max(1, ...counts);
  const [low, high] = [edges[0] ?? 0, edges.at(-1) ?? 1];
  const span = high - low || 1;
  const x = (value: number) => ((value - low) / span) * width;
  return (
    <svg class="bars" viewBox={`0 0 ${width} ${height + 16}`} role="img" aria-label={label}>
      <line x1={0} x2={width} y1={height} y2={height} stroke="var(--line)" />
      {counts.map((amount, index) => {
        const [from, to] = [edges[index] ?? low, edges[index + 1] ?? high];
        const tall = (amount / most) * height;
        return (
          <rect
            key={index}
            x={x(from)}
            y={height - tall}
            width={Math.max(0.5, x(to) - x(from) - 0.5)}
            height={tall}
            fill={colour}
          >
            <title>{`${number(from)} to ${number(to)}: ${number(amount)}`}</title>
          </rect>
        );
      })}
      <text x={0} y={height + 12}>
        {number(low, 3)}
      </text>
      <text x={width / 2} y={height + 12} text-anchor="middle">
        {number((low + high) / 2, 3)}
      </text>
      <text x={width} y={height + 12} text-anchor="end">
        {number(high, 3)}
      </text>
    </svg>
  );
}
