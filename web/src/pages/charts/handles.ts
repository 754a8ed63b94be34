/** Taking hold of a chart: to move it among its neighbours, and to make it larger or smaller. */
import { followPointer } from "../../ui/drag";
import { type ChartSize, moveTo, setSize } from "./preferences";

interface Handle {
  onPointerDown(event: PointerEvent): void;
}

/** While it is dragged, a chart takes the place of the one under the pointer. */
export function dragHandle(key: string, members: readonly string[]): Handle {
  return {
    onPointerDown: (event) => {
      if (event.button !== 0) return;
      event.preventDefault();
      const cell = cellOf(event.target);
      cell?.classList.add("moving");
      followPointer(window, {
        move: ({ clientX, clientY }) => {
          const over = cellOf(document.elementFromPoint(clientX, clientY))?.dataset.key;
          if (over === undefined || over === key || !members.includes(over)) return;
          const inOrder = [...(cell?.parentElement?.children ?? [])].flatMap((other) =>
            other instanceof HTMLElement && other.dataset.key !== undefined ? [other.dataset.key] : [],
          );
          moveTo(key, inOrder.indexOf(over), inOrder);
        },
        end: () => cell?.classList.remove("moving"),
      });
    },
  };
}

/** Sizes are whole columns and rows of the grid. */
export function resizeHandle(key: string, size: ChartSize): Handle {
  return {
    onPointerDown: (event) => {
      const cell = cellOf(event.target);
      const box = cell?.getBoundingClientRect();
      if (event.button !== 0 || !cell || !box) return;
      event.preventDefault();
      const unit = { width: box.width / size.columns, height: box.height / size.rows };
      followPointer(window, {
        move: ({ clientX, clientY }) =>
          setSize(key, {
            columns: Math.round((clientX - box.left) / unit.width),
            rows: Math.round((clientY - box.top) / unit.height),
          }),
        end: () => {},
      });
    },
  };
}

function cellOf(target: EventTarget | null): HTMLElement | null {
  return target instanceof Element ? target.closest<HTMLElement>(".chart-cell") : null;
}
