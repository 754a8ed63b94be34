/** A list of any length of which only the rows on the screen are drawn. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { rowOffsets, scrollToShow, visibleRows } from "./windowing";
import "./virtual-list.css";

export interface VirtualListProps<T extends { key: string }> {
  items: readonly T[];
  heightOf(item: T): number;
  /** One row, of exactly that height; `top`: where it stands. */
  renderRow(item: T, index: number): ComponentChildren;
  /** Stays at the top while rows move below it. */
  head?: ComponentChildren;
  headHeight?: number;
  label: string;
  /** The row that is kept in view when it changes. */
  cursor?: string | null;
  columnCount?: number;
  /** Another one is another list: it begins at its top. */
  listKey?: string;
  onRange?(items: readonly T[]): void;
  onKeyDown?(event: KeyboardEvent): void;
  class?: string;
  style?: Record<string, string>;
}

/** For buttons within rows: a click leaves the keyboard with the list, whose arrows and Space go on from there. */
export function keepFocus(event: MouseEvent): void {
  event.preventDefault();
}

const SPARE = 8; // rows drawn beyond the edges: a fast wheel shows no gap

export function VirtualList<T extends { key: string }>(props: VirtualListProps<T>) {
  const { items, heightOf, renderRow, head, headHeight = 0, label, cursor, columnCount, onRange } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const offsets = useMemo(() => rowOffsets(items.map(heightOf), items.length), [items, heightOf]);

  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const measure = () => {
      const next = { top: element.scrollTop, height: element.clientHeight };
      setView((old) => (old.top === next.top && old.height === next.height ? old : next));
    };
    const observer = new ResizeObserver(measure); // which tells the first size too, before anything is painted
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, []);

  useEffect(() => {
    const row = cursor == null ? -1 : items.findIndex((item) => item.key === cursor);
    const element = scroller.current;
    if (row < 0 || !element) return;
    element.scrollTop = scrollToShow(offsets, row, element.scrollTop, element.clientHeight - headHeight);
  }, [cursor]);

  const listed = useRef(props.listKey);
  useLayoutEffect(() => {
    if (listed.current === props.listKey) return; // to scroll makes the browser lay out the page
    listed.current = props.listKey;
    if (scroller.current) scroller.current.scrollTop = 0;
  }, [props.listKey]);

  const [first, end] = visibleRows(offsets, view.top, view.height - headHeight, SPARE);
  const visible = items.slice(first, end);
  useEffect(() => onRange?.(visible), [first, end, items]);
  return (
    <div
      ref={scroller}
      class={`virtual-list ${props.class ?? ""}`}
      style={props.style}
      role="grid"
      onKeyDown={(event) => props.onKeyDown?.(event)}
      tabIndex={0}
      aria-label={label}
      aria-rowcount={items.length + (head ? 1 : 0)}
      aria-colcount={columnCount}
      aria-activedescendant={cursor != null ? `row-${cursor}` : undefined}
      aria-multiselectable="true"
    >
      {head}
      <div class="virtual-rows" role="rowgroup" style={{ height: `${offsets.at(-1) ?? 0}px` }}>
        {visible.map((item, index) => (
          <div
            key={item.key}
            class="virtual-row"
            role="presentation"
            style={{ transform: `translateY(${offsets[first + index] ?? 0}px)`, height: `${heightOf(item)}px` }}
          >
            {renderRow(item, first + index)}
          </div>
        ))}
      </div>
    </div>
  );
}
