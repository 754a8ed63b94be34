/** The table of all runs. */
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { link } from "../../address";
import { curveOf, wantCurves } from "../../data/curves";
import { bestValues, type Item, items, listKey, order, type RunItem, shownColumns } from "../../data/listing";
import { add, between, toggle, toggleAll } from "../../data/selection";
import { arrowOf, directionOf, sortBy } from "../../data/sorting";
import { colourOf, cursor, isMarked, marked } from "../../data/state";
import { mainMetric } from "../../side/side";
import { cellText } from "../../ui/cell";
import { GroupHead } from "../../ui/group-head";
import { Progress } from "../../ui/run-label";
import { Sparkline } from "../../ui/sparkline";
import { keepFocus, VirtualList } from "../../ui/virtual-list";
import { age, count, duration, number } from "../../words";
import { gridTemplate, leastWidth, NARROW, type TableColumn, tableColumns } from "./columns-of-table";
import "./run-table.css";

const ROW = 36;
const TWO_LINES = 50; // on a phone the step stands below the name
const GROUP = 34;
const HEAD = 32;
const heightOf = (item: Item) => (item.kind === "group" ? GROUP : ROW);
const narrowHeightOf = (item: Item) => (item.kind === "group" ? GROUP : TWO_LINES);

export function mark(id: string, extend: boolean): void {
  marked.value = extend ? add(marked.peek(), between(order.peek(), cursor.peek(), id)) : toggle(marked.peek(), id);
  cursor.value = id;
}

function markGroup(ids: string[]): void {
  marked.value = toggleAll(marked.peek(), ids);
}

export function RunTable() {
  const box = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(innerWidth);
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const columns = tableColumns(width, shownColumns.value, mainMetric.value);
  return (
    <div class={`run-table${width < NARROW ? " narrow" : ""}`} ref={box}>
      <VirtualList
        class="run-rows"
        label="Runs"
        items={items.value}
        listKey={listKey.value}
        heightOf={width < NARROW ? narrowHeightOf : heightOf}
        headHeight={HEAD}
        columnCount={columns.length}
        cursor={cursor.value}
        style={{ "--template": gridTemplate(columns), "--least": `${leastWidth(columns)}px` }}
        onRange={(visible) => wantCurves(visible.filter((item) => item.kind === "run").map((item) => item.key))}
        head={<Head columns={columns} />}
        renderRow={(item, index) =>
          item.kind === "group" ? (
            <GroupHead item={item} onMark={markGroup} />
          ) : (
            <Row item={item} index={index} columns={columns} />
          )
        }
      />
    </div>
  );
}

function Head({ columns }: { columns: readonly TableColumn[] }) {
  const all = order.value;
  const chosen = all.filter((id) => isMarked.value.has(id)).length;
  return (
    <div class="run-row run-head" role="row" aria-rowindex={1}>
      {columns.map((column) => {
        const direction = column.sort ? directionOf(column.sort, column.column?.goal ?? null) : "none";
        return (
          <span
            key={column.id === "chosen" ? column.sort : column.id}
            role="columnheader"
            aria-sort={column.sort ? direction : undefined}
            class={`cell cell-${column.id}${column.right ? " num" : ""}`}
          >
            {column.id === "mark" ? (
              <button
                type="button"
                role="checkbox"
                class="dot-button"
                aria-label="Mark all runs"
                aria-checked={chosen === 0 ? false : chosen === all.length ? true : "mixed"}
                onClick={() => (marked.value = toggleAll(marked.value, all))}
              >
                <span class={`mark-box${chosen ? (chosen === all.length ? " all" : " some") : ""}`} />
              </button>
            ) : column.sort ? (
              <button
                type="button"
                class="clip"
                title={`Order by ${column.title ?? column.label}`}
                onClick={() => sortBy(column.sort)}
              >
                {column.label}
                {arrowOf(direction)}
              </button>
            ) : (
              <span class="clip">{column.label}</span>
            )}
          </span>
        );
      })}
    </div>
  );
}

function Row({ item, index, columns }: { item: RunItem; index: number; columns: readonly TableColumn[] }) {
  const { row } = item;
  const on = isMarked.value.has(row.id);
  return (
    <div
      class={`run-row${row.hidden ? " hidden-run" : ""}`}
      id={`row-${row.id}`}
      role="row"
      aria-rowindex={index + 2}
      aria-selected={on}
      data-cursor={cursor.value === row.id || undefined}
      style={{ "--run": colourOf(row.id) }}
      onClick={(event) => {
        if (event.target instanceof Element && event.target.closest("a, button")) return;
        if (event.shiftKey || event.ctrlKey || event.metaKey) mark(row.id, event.shiftKey);
        else cursor.value = row.id;
      }}
    >
      {columns.map((column) => (
        <span
          key={column.id === "chosen" ? column.sort : column.id}
          role="gridcell"
          class={`cell cell-${column.id}${column.right ? " num" : ""}`}
        >
          <CellContent item={item} column={column} on={on} narrow={columns.every(({ id }) => id !== "status")} />
        </span>
      ))}
    </div>
  );
}

interface CellProps {
  item: RunItem;
  column: TableColumn;
  on: boolean;
  narrow: boolean;
}

function CellContent({ item, column, on, narrow }: CellProps) {
  const { row } = item;
  switch (column.id) {
    case "mark":
      return (
        <button
          type="button"
          role="checkbox"
          class="dot-button"
          tabIndex={-1}
          aria-checked={on}
          aria-label={`Mark ${row.name}`}
          onMouseDown={keepFocus}
          onClick={(event) => mark(row.id, event.shiftKey)}
        >
          <span class={`dot ring${on ? " on" : ""}`} />
        </button>
      );
    case "run":
      return (
        <>
          <span class="row-name clip">
            {item.lines && (
              <span class="tree-lines" aria-hidden="true">
                {item.lines}
              </span>
            )}
            <a href={link(`/run/${encodeURIComponent(row.id)}`)} title={nameTitle(item)} tabIndex={-1}>
              {row.name}
            </a>
          </span>
          {narrow && <Progress id={row.id} />}
          {!narrow && row.warning && <small class="warn clip">{row.warning}</small>}
          {!narrow && item.gone && <small class="faint clip">forked from {item.gone}</small>}
          {!narrow && <Tags tags={row.tags} />}
          {row.hidden && <small class="faint">hidden</small>}
        </>
      );
    case "status":
      return <span class={`run-status ${row.status}`}>{row.status}</span>;
    case "step":
      return (
        <>
          {count(row.step)}
          {row.total_steps !== null && row.total_steps !== row.step && (
            <span class="faint"> / {count(row.total_steps)}</span>
          )}
        </>
      );
    case "curve":
      return <Sparkline values={curveOf(row.id)?.spark} />;
    case "last":
      return <>{number(row.last)}</>;
    case "best": {
      const curve = curveOf(row.id);
      const isBest = curve != null && item.groupBest !== null && curve.best === item.groupBest;
      return (
        <span
          class={isBest ? "best-value" : ""}
          title={curve?.best_step != null ? `at step ${count(curve.best_step)}` : undefined}
        >
          {number(curve?.best)}
        </span>
      );
    }
    case "time":
      return <span class="dim">{duration(row.seconds)}</span>;
    case "age":
      return <span class="dim">{row.status === "live" ? "now" : age(row.age)}</span>;
    case "chosen": {
      if (!column.column) return null;
      const best = bestValues.value.get(column.column.index);
      const isBest = best !== undefined && row.values[column.column.index] === best;
      const text = cellText(row, column.column);
      return (
        <span class={`clip${isBest ? " best-value" : " dim"}`} title={isBest ? `${text}: the best` : text}>
          {text}
        </span>
      );
    }
  }
}

function nameTitle({ row }: RunItem): string {
  const parts = [row.id, row.recipe, row.experiment, row.group, row.parent && `forked from ${row.parent}`];
  return parts.filter(Boolean).join(" · ");
}

function Tags({ tags }: { tags: readonly string[] }) {
  if (!tags.length) return null;
  return (
    <span class="run-tags clip">
      {tags.map((tag) => (
        <span key={tag} class="run-tag">
          {tag}
        </span>
      ))}
    </span>
  );
}
