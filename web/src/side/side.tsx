/** The list of runs beside a page: which of them it shows, with their curves and figures. */

import { computed } from "@preact/signals";
import { link, navigate } from "../address";
import { highlighted } from "../charts/cursor";
import { curveOf, wantCurves } from "../data/curves";
import { type Item, items, listKey, order, type RunItem, shownColumns } from "../data/listing";
import { add, between, neighbour, toggle } from "../data/selection";
import { arrowOf, directionOf, sortBy } from "../data/sorting";
import { colourOf, cursor, isShown, marked, shown, table } from "../data/state";
import { cellText } from "../ui/cell";
import { Dialog } from "../ui/dialog";
import { FilterBox } from "../ui/filter-box";
import { GroupHead } from "../ui/group-head";
import { Progress } from "../ui/run-label";
import { Sparkline } from "../ui/sparkline";
import { keepFocus, VirtualList } from "../ui/virtual-list";
import { count, number, plural } from "../words";
import { sheetOpen } from "./state";
import "./side.css";

const ROW = 34;
const GROUP = 30;
const HEAD = 26;
const heightOf = (item: Item) => (item.kind === "group" ? GROUP : ROW);

/** The main metric, where all runs have the same one. */
export const mainMetric = computed(() => {
  const metrics = new Set((table.value?.rows ?? []).map((row) => row.metric).filter((metric) => metric !== null));
  return metrics.size === 1 ? [...metrics][0] : undefined;
});

/** Shows a run or takes it away; with shift all from the one clicked before. */
export function toggleShown(id: string, extend: boolean): void {
  if (extend) marked.value = add(shown.peek(), between(order.peek(), cursor.peek(), id));
  else marked.value = toggle(shown.peek(), id);
  cursor.value = id;
}

/** Keys while the list has the keyboard: the page beside it has arrows of its own. */
function onListKey(event: KeyboardEvent): void {
  if (!(event.target instanceof HTMLElement) || event.target.getAttribute("role") !== "grid") return;
  const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 12, PageUp: -12, Home: -1e9, End: 1e9 }[event.key];
  const at = cursor.peek();
  if (step !== undefined) cursor.value = neighbour(order.peek(), at, step);
  else if (event.key === " " && at !== null) toggleShown(at, event.shiftKey);
  else if (event.key === "Enter" && at !== null) navigate(`/run/${encodeURIComponent(at)}`);
  else return;
  event.preventDefault();
}

export function SideList() {
  const setting = shownColumns.value[0];
  return (
    <div class="side">
      <div class="side-search">
        <FilterBox />
      </div>
      <VirtualList
        class="side-list"
        label="Runs"
        items={items.value}
        listKey={listKey.value}
        onKeyDown={onListKey}
        heightOf={heightOf}
        headHeight={HEAD}
        cursor={cursor.value}
        onRange={(visible) => wantCurves(visible.filter((item) => item.kind === "run").map((item) => item.key))}
        head={
          <div class="side-row side-head" role="row">
            <span role="columnheader">
              <span class="unseen">shown</span>
            </span>
            <SortHead term="run" text="run" />
            <span class="num clip" role="columnheader">
              {mainMetric.value ?? "curve"}
            </span>
            <SortHead term="last" text="last" right />
            {setting ? <SortHead term={setting.term} text={setting.label} right /> : <span />}
          </div>
        }
        renderRow={(item) => (item.kind === "group" ? <GroupHead item={item} /> : <SideRow item={item} />)}
      />
      <div class="side-foot">
        <span>
          {plural(shown.value.length, "run")} shown of {count(table.value?.rows.length ?? 0)}
        </span>
        {marked.value.length > 0 && (
          <button type="button" onClick={() => (marked.value = [])}>
            the newest
          </button>
        )}
      </div>
    </div>
  );
}

function SortHead({ term, text, right = false }: { term: string; text: string; right?: boolean }) {
  const direction = directionOf(term);
  return (
    <span role="columnheader" aria-sort={direction} class={right ? "num clip" : "clip"}>
      <button type="button" title={`Order by ${text}`} onClick={() => sortBy(term)}>
        {text}
        {arrowOf(direction)}
      </button>
    </span>
  );
}

function SideRow({ item }: { item: RunItem }) {
  const { row } = item;
  const on = isShown.value.has(row.id);
  const setting = shownColumns.value[0];
  return (
    <div
      class="side-row"
      id={`row-${row.id}`}
      role="row"
      aria-selected={on}
      data-cursor={cursor.value === row.id || undefined}
      style={{ "--run": on ? colourOf(row.id) : "var(--ghost)" }}
      onPointerEnter={() => {
        highlighted.value = on ? row.id : null;
      }}
      onPointerLeave={() => {
        highlighted.value = null;
      }}
      onClick={(event) => {
        if (event.target instanceof Element && event.target.closest("a, button")) return;
        toggleShown(row.id, event.shiftKey);
      }}
    >
      <span role="gridcell">
        <button
          type="button"
          role="checkbox"
          aria-checked={on}
          aria-label={`Show ${row.name}`}
          class="dot-button"
          tabIndex={-1}
          onMouseDown={keepFocus}
          onClick={(event) => toggleShown(row.id, event.shiftKey)}
        >
          <span class={`dot${on ? "" : " off"}`} />
        </button>
      </span>
      <span role="gridcell" class="clip">
        <span class="tree-lines" aria-hidden="true">
          {item.lines}
        </span>
        <a href={link(`/run/${encodeURIComponent(row.id)}`)} title={row.id} tabIndex={-1}>
          {row.name}
        </a>{" "}
        <Progress id={row.id} />
      </span>
      <span role="gridcell">
        <Sparkline values={curveOf(row.id)?.spark} />
      </span>
      <span role="gridcell" class="num">
        {number(row.last)}
      </span>
      <span role="gridcell" class="num dim clip">
        {setting ? cellText(row, setting) : null}
      </span>
    </div>
  );
}

/** The same on a phone. */
export function SideSheet() {
  if (!sheetOpen.value) return null;
  return (
    <Dialog title="Runs shown" kind="sheet" onClose={() => (sheetOpen.value = false)}>
      <SideList />
    </Dialog>
  );
}
