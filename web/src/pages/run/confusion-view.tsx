import { useMemo, useRef } from "preact/hooks";
import { type Cell, DataTable } from "../../ui/data-table";
import { PictureMenu } from "../../ui/picture-menu";
import { count, plural } from "../../words";
import { accuracyOf, type ClassFigures, type Confusion } from "./confusion";
import "./confusion.css";

const NUMBERS_UP_TO = 24; // classes whose cells have room for their count
const LABELS_UP_TO = 60;

/** A confusion matrix as a heat map: what is right in one hue, what is wrong in another, each row by its own total. */
export function ConfusionView({ confusion }: { confusion: Confusion }) {
  const { labels, counts } = confusion;
  const picture = useRef<SVGSVGElement>(null);
  const { right, total } = accuracyOf(confusion);
  const cell = Math.max(6, Math.min(34, Math.floor(680 / labels.length)));
  const named = labels.length <= LABELS_UP_TO;
  const margin = named ? 12 + 6.4 * Math.min(16, Math.max(...labels.map((label) => label.length))) : 8;
  const extent = cell * labels.length;
  const share = total ? `${((100 * right) / total).toFixed(1)} %` : "none";
  return (
    <figure class="confusion">
      <div class="picture-menu">
        <PictureMenu
          picture={() => picture.current}
          name="confusion"
          table={() => [["label", ...labels], ...counts.map((row, index) => [labels[index], ...row])]}
        />
      </div>
      <svg
        ref={picture}
        viewBox={`0 0 ${margin + extent + 4} ${margin + extent + 4}`}
        style={{ width: `${margin + extent + 4}px` }}
        role="img"
        aria-label={`Confusion matrix of ${labels.length} classes: ${share} of ${total} right. The table of classes tells the same.`}
      >
        {named &&
          labels.map((label, index) => (
            <g key={label}>
              <text x={margin - 6} y={margin + cell * (index + 0.5)} text-anchor="end" dominant-baseline="central">
                {short(label)}
              </text>
              <text
                transform={`translate(${margin + cell * (index + 0.5)} ${margin - 6}) rotate(-90)`}
                dominant-baseline="central"
              >
                {short(label)}
              </text>
            </g>
          ))}
        {counts.map((row, label) => {
          const whole = row.reduce((sum, amount) => sum + amount, 0) || 1;
          return row.map((amount, guess) => {
            const part = amount / whole;
            const isRight = label === guess;
            return (
              <g key={`${label} ${guess}`}>
                <rect
                  x={margin + cell * guess}
                  y={margin + cell * label}
                  width={cell - 1}
                  height={cell - 1}
                  rx={2}
                  fill={amount === 0 ? "var(--raise)" : isRight ? "var(--good)" : "var(--bad)"}
                  opacity={amount === 0 ? 1 : isRight ? 0.18 + 0.82 * part : Math.min(1, 0.25 + 2.5 * part)}
                >
                  <title>{`${labels[label]} taken for ${labels[guess]}: ${count(amount)} (${(100 * part).toFixed(1)} %)`}</title>
                </rect>
                {amount > 0 && labels.length <= NUMBERS_UP_TO && (
                  <text
                    class={(isRight ? part > 0.5 : part > 0.18) ? "on-fill" : "on-pale"}
                    x={margin + cell * (guess + 0.5) - 0.5}
                    y={margin + cell * (label + 0.5) - 0.5}
                    text-anchor="middle"
                    dominant-baseline="central"
                  >
                    {amount > 9999 ? `${Math.round(amount / 1000)}k` : amount}
                  </text>
                )}
              </g>
            );
          });
        })}
      </svg>
      <figcaption>
        {share} of {count(total)} right. Rows: what it is; columns: what it was taken for; shades: the share of the row.
      </figcaption>
    </figure>
  );
}

function short(label: string): string {
  return label.length > 16 ? `${label.slice(0, 15)}…` : label;
}

const percent = (value: Cell) => (typeof value === "number" ? `${(100 * value).toFixed(1)} %` : "–");

/** Precision, recall and F1 of each class; of a run that told no matrix, what it told. */
export function ClassTable({ classes }: { classes: readonly ClassFigures[] }) {
  const whole = classes.some((row) => row.support !== null);
  const columns = useMemo(
    () => [
      { name: "class" },
      { name: whole ? "recall" : "accuracy", numeric: true, format: percent },
      ...(whole
        ? [
            { name: "precision", numeric: true, format: percent },
            { name: "F1", numeric: true, format: percent },
            { name: "images", numeric: true, format: (value: Cell) => count(value as number) },
            { name: "most often taken for" },
          ]
        : []),
    ],
    [whole],
  );
  const rows = useMemo(
    () =>
      classes.map((row) => [
        row.label,
        row.recall,
        ...(whole ? [row.precision, row.f1, row.support, row.confusedWith] : []),
      ]),
    [classes, whole],
  );
  return (
    <>
      <DataTable
        label="Figures of each class"
        sortParam="order"
        columns={columns}
        rows={rows}
        height={18}
        sortedBy={{ column: 1, descending: false }}
      />
      <p class="faint">{plural(classes.length, "class", "classes")}, the worst first</p>
    </>
  );
}

/** What an evaluation that told only accuracies says of each class. */
export function classesOf(perClass: Record<string, unknown>): ClassFigures[] {
  return Object.entries(perClass).map(([label, value]) => ({
    label,
    support: null,
    recall: typeof value === "number" ? value : null,
    precision: null,
    f1: null,
    confusedWith: null,
  }));
}
