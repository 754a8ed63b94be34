import { useMemo, useRef, useState } from "preact/hooks";
import { type Codec, pageParam } from "../address";
import { count, exact, number } from "../words";
import "./data-table.css";

export type Cell = string | number | boolean | null | undefined;
export interface DataColumn {
  name: string;
  numeric?: boolean;
  /** How a value is written; by default a number has six digits, and all of them when pointed at. */
  format?: (value: Cell) => string;
}
export interface Sorting {
  column: number;
  descending: boolean;
}
interface DataTableProps {
  columns: readonly DataColumn[];
  rows: readonly (readonly Cell[])[];
  /** What it shows, for screen readers. */
  label: string;
  /** Rows that are on the screen at once. */
  height?: number;
  /** A row that can be opened; `index` counts the rows as given. */
  onRow?: (index: number) => void;
  selected?: number | null;
  /** As wide as there is room, not as its columns need. */
  wide?: boolean;
  /** Column and direction to begin with. */
  sortedBy?: Sorting;
  /** The parameter of the address that keeps how it is sorted; by default nothing does. */
  sortParam?: string;
}

/** Sorting in the address: `2` for the third column, `-2` for the greatest first, `none`. */
const sortingCodec: Codec<Sorting | null> = {
  parse: (typed) => {
    const [, minus, column] = /^(-?)(\d{1,4})$/.exec(typed) ?? [];
    if (column !== undefined) return { column: Number(column), descending: minus === "-" };
    return typed === "none" ? null : undefined;
  },
  format: (sorting) => (sorting ? `${sorting.descending ? "-" : ""}${sorting.column}` : "none"),
};

const ROW = 28; // pixels
const OVERSCAN = 8;
const DIGITS = 6;
const WIDEST = 44; // characters of a column
const MEASURED = 200; // rows that widths are measured by

/** A table that sorts by a click on a heading and draws only the rows on the screen. */
export function DataTable({
  columns,
  rows,
  label,
  height = 16,
  onRow,
  selected = null,
  wide = false,
  sortedBy,
  sortParam,
}: DataTableProps) {
  const [ownSort, setOwnSort] = useState<Sorting | null>(sortedBy ?? null);
  const param = useMemo(() => (sortParam ? pageParam(sortParam, sortingCodec, sortedBy ?? null) : null), [sortParam]);
  const sort = param ? param.value : ownSort;
  const [top, setTop] = useState(0);
  const body = useRef<HTMLDivElement>(null);
  const order = useMemo(() => sortedOrder(rows, sort), [rows, sort]);
  const widths = useMemo(() => columnWidths(columns, rows), [columns, rows]);
  const first = Math.max(0, Math.floor(top / ROW) - OVERSCAN);
  const shown = order.slice(first, first + height + 2 * OVERSCAN);
  const toggle = (column: number) => {
    const numeric = columns[column]?.numeric ?? false;
    const isTurned = sort?.column === column && sort.descending !== numeric;
    const next = isTurned ? null : { column, descending: sort?.column === column ? !numeric : numeric };
    if (param) param.replace(next);
    else setOwnSort(next);
    body.current?.scrollTo({ top: 0 });
  };
  const move = (from: HTMLElement, by: number) => {
    const next = by > 0 ? from.nextElementSibling : from.previousElementSibling;
    if (next instanceof HTMLElement && next.tabIndex >= 0) next.focus();
  };
  return (
    <section
      class={wide ? "data-table wide" : "data-table"}
      ref={body}
      aria-label={label}
      style={{ maxHeight: `${(height + 1.4) * ROW}px` }}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <table
        aria-rowcount={rows.length + 1}
        style={{ [wide ? "minWidth" : "width"]: `${widths.reduce((total, width) => total + width, 0)}ch` }}
      >
        <colgroup>
          {widths.map((width, index) => (
            <col key={columns[index]?.name} style={{ width: `${width}ch` }} />
          ))}
        </colgroup>
        <thead>
          <tr>
            {columns.map((column, index) => {
              const direction = sort?.column === index ? (sort.descending ? "descending" : "ascending") : undefined;
              return (
                <th key={column.name} class={column.numeric ? "num" : ""} aria-sort={direction ?? "none"}>
                  <button type="button" onClick={() => toggle(index)}>
                    {column.name}
                    <span aria-hidden="true">{direction ? (sort?.descending ? " ▾" : " ▴") : ""}</span>
                  </button>
                </th>
              );
            })}
          </tr>
        </thead>
        <tbody>
          {first > 0 && <tr class="space" style={{ height: `${first * ROW}px` }} />}
          {shown.map((row, at) => (
            <tr
              key={row}
              aria-rowindex={first + at + 2}
              class={[onRow ? "opens" : "", row === selected ? "on" : ""].join(" ").trim()}
              {...(onRow
                ? {
                    tabIndex: 0,
                    "aria-selected": row === selected,
                    onClick: () => onRow(row),
                    onKeyDown: (event: KeyboardEvent) => {
                      if (event.key === "Enter" || event.key === " ") onRow(row);
                      else if (event.key === "ArrowDown") move(event.currentTarget as HTMLElement, 1);
                      else if (event.key === "ArrowUp") move(event.currentTarget as HTMLElement, -1);
                      else return;
                      event.preventDefault();
                    },
                  }
                : {})}
            >
              {columns.map((column, index) => {
                const text = cellText(rows[row]?.[index], column);
                return (
                  <td key={column.name} class={column.numeric ? "num" : ""} title={titleOf(rows[row]?.[index], text)}>
                    {text}
                  </td>
                );
              })}
            </tr>
          ))}
          {first + shown.length < order.length && (
            <tr class="space" style={{ height: `${(order.length - first - shown.length) * ROW}px` }} />
          )}
        </tbody>
      </table>
    </section>
  );
}

/** "10,000 rows". */
export function rowCount(rows: number, cut: boolean): string {
  return `${count(rows)} row${rows === 1 ? "" : "s"}${cut ? ", more were logged" : ""}`;
}

function cellText(value: Cell, column: DataColumn): string {
  if (column.format) return column.format(value);
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isFinite(value) ? number(value, DIGITS) : exact(value);
  return typeof value === "boolean" ? (value ? "yes" : "no") : value;
}

/** All of what a cell shows in short. */
function titleOf(value: Cell, text: string): string | undefined {
  if (typeof value === "number") return exact(value) === text ? undefined : exact(value);
  return text.length > 24 ? text : undefined;
}

/** Indices of rows in the order asked for; what is missing stands last either way. */
export function sortedOrder(rows: readonly (readonly Cell[])[], sort: Sorting | null): number[] {
  const order = rows.map((_, index) => index);
  if (!sort) return order;
  const sign = sort.descending ? -1 : 1;
  const missing = (value: Cell) => value === null || value === undefined || Number.isNaN(value);
  return order.sort((left, right) => {
    const [a, b] = [rows[left]?.[sort.column], rows[right]?.[sort.column]];
    if (missing(a) || missing(b)) return Number(missing(a)) - Number(missing(b)) || left - right;
    const compared =
      typeof a === "number" && typeof b === "number"
        ? a - b
        : String(a).localeCompare(String(b), "en", { numeric: true });
    return compared * sign || left - right;
  });
}

function columnWidths(columns: readonly DataColumn[], rows: readonly (readonly Cell[])[]): number[] {
  const step = Math.max(1, Math.floor(rows.length / MEASURED));
  return columns.map((column, index) => {
    let widest = column.name.length + 2;
    for (let at = 0; at < rows.length; at += step)
      widest = Math.max(widest, cellText(rows[at]?.[index], column).length);
    return Math.min(WIDEST, Math.max(6, widest + 3));
  });
}
