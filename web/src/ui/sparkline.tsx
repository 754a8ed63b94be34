import type { Figure } from "../data/types";
import "./sparkline.css";

const WIDTH = 70;
const HEIGHT = 18;
const EDGE = 1; // so that the line is not cut at its extremes

/** The path of a curve in a box of its own; NaN and infinity break it. */
export function sparkPath(values: readonly Figure[], width = WIDTH, height = HEIGHT): string {
  const finite = values.filter((value): value is number => typeof value === "number");
  if (finite.length < 2) return "";
  const low = Math.min(...finite);
  const range = Math.max(...finite) - low || 1;
  let path = "";
  let pen = "M";
  values.forEach((value, index) => {
    if (typeof value !== "number") {
      pen = "M";
      return;
    }
    const x = (index / (values.length - 1)) * width;
    const y = EDGE + (1 - (value - low) / range) * (height - 2 * EDGE);
    path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}`;
    pen = "L";
  });
  return path;
}

/** The main metric of a run in the size of a word; the figures beside it say the same in numbers. */
export function Sparkline({ values }: { values: readonly Figure[] | undefined }) {
  return (
    <svg class="spark" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      {values && <path d={sparkPath(values)} vector-effect="non-scaling-stroke" />}
    </svg>
  );
}
