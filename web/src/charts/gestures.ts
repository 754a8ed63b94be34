/** What hands do on a chart: drag to zoom, pan, wheel, pinch. It says what is wanted, in shares of the axis. */
import type { Box } from "./geometry";

export interface GestureTarget {
  /** Between the axes, in CSS pixels of the element. */
  box(): Box;
  /** The pointer stands here; null: it has left. */
  hover(at: { x: number; y: number } | null): void;
  /** A stretch is being chosen; null: not any more. */
  select(stretch: { from: number; to: number } | null): void;
  /** Zoom to a stretch, in shares of the axis. */
  zoomTo(from: number, to: number): void;
  /** Make the stretch in sight `factor` times as long, around a share of the axis. */
  zoomBy(factor: number, around: number): void;
  /** Move by a share of the axis; positive: towards greater values. */
  panBy(share: number): void;
  zoomOut(): void;
  /** Whether the wheel by itself zooms; else it scrolls the page, and zooms with Ctrl. */
  wheelZooms(): boolean;
}

const LEAST_DRAG = 5; // pixels
const WHEEL_STEP = 0.0015; // of a zoom for each pixel of the wheel
const TAP = 250; // milliseconds

/** Listens on an element until the function it gives is called. */
export function listen(element: HTMLElement, target: GestureTarget): () => void {
  const pointers = new Map<number, { x: number; y: number }>();
  let mode: "none" | "select" | "pan" | "pinch" = "none";
  let start = 0;
  let began = 0;
  let distance = 0;
  let middle = 0;

  const positionOf = (event: MouseEvent) => {
    const edge = element.getBoundingClientRect();
    return { x: event.clientX - edge.left, y: event.clientY - edge.top };
  };
  const share = (x: number) => {
    const box = target.box();
    return Math.min(1, Math.max(0, (x - box.left) / box.width));
  };
  const inside = ({ x, y }: { x: number; y: number }) => {
    const { left, top, width, height } = target.box();
    return x >= left - 4 && x <= left + width + 4 && y >= top - 4 && y <= top + height + 4;
  };
  const twoFingers = () => {
    const [first, second] = [...pointers.values()];
    if (!first || !second) return null;
    return { distance: Math.max(10, Math.hypot(first.x - second.x, first.y - second.y)), x: (first.x + second.x) / 2 };
  };

  function down(event: PointerEvent): void {
    const at = positionOf(event);
    if (!inside(at) || event.button > 1) return;
    pointers.set(event.pointerId, at);
    const fingers = twoFingers();
    if (fingers) {
      mode = "pinch";
      distance = fingers.distance;
      middle = fingers.x;
      target.select(null);
    } else {
      mode = event.pointerType === "touch" || event.shiftKey || event.button === 1 ? "pan" : "select";
      start = at.x;
      began = event.timeStamp;
    }
    if (event.pointerType !== "touch") element.setPointerCapture(event.pointerId);
    if (event.button === 1) event.preventDefault();
  }

  function move(event: PointerEvent): void {
    const at = positionOf(event);
    if (!pointers.has(event.pointerId)) {
      if (event.pointerType !== "touch") target.hover(inside(at) ? at : null);
      return;
    }
    pointers.set(event.pointerId, at);
    if (mode === "pinch") {
      const fingers = twoFingers();
      if (!fingers) return;
      target.zoomBy(distance / fingers.distance, share(fingers.x));
      target.panBy((middle - fingers.x) / target.box().width);
      distance = fingers.distance;
      middle = fingers.x;
    } else if (mode === "pan") {
      target.panBy((start - at.x) / target.box().width);
      start = at.x;
    } else if (mode === "select") {
      target.hover(inside(at) ? at : null);
      target.select(Math.abs(at.x - start) >= LEAST_DRAG ? { from: share(start), to: share(at.x) } : null);
    }
  }

  function up(event: PointerEvent): void {
    const at = pointers.get(event.pointerId);
    pointers.delete(event.pointerId);
    if (!at) return;
    if (mode === "select" && event.type === "pointerup" && Math.abs(at.x - start) >= LEAST_DRAG) {
      target.zoomTo(Math.min(share(start), share(at.x)), Math.max(share(start), share(at.x)));
    }
    if (mode === "pan" && event.pointerType === "touch" && event.timeStamp - began < TAP) target.hover(at);
    target.select(null);
    const [remaining] = pointers.values();
    mode = remaining ? "pan" : "none";
    if (remaining) start = remaining.x;
  }

  function wheel(event: WheelEvent): void {
    const at = positionOf(event);
    if (!inside(at)) return;
    const unit = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (sideways) {
      event.preventDefault();
      target.panBy(((event.deltaX || event.deltaY) * unit) / target.box().width);
    } else if (event.ctrlKey || event.metaKey || target.wheelZooms()) {
      event.preventDefault();
      // A pinch on a touch pad arrives as a wheel with Ctrl and small steps.
      target.zoomBy(Math.exp(event.deltaY * unit * (event.ctrlKey ? 6 : 1) * WHEEL_STEP), share(at.x));
    }
  }

  function leave(event: PointerEvent): void {
    if (!pointers.size && event.pointerType !== "touch") target.hover(null);
  }

  function doubleClick(event: MouseEvent): void {
    if (inside(positionOf(event))) target.zoomOut();
  }

  const listeners: [string, (event: never) => void, AddEventListenerOptions?][] = [
    ["pointerdown", down],
    ["pointermove", move],
    ["pointerup", up],
    ["pointercancel", up],
    ["pointerleave", leave],
    ["dblclick", doubleClick],
    ["wheel", wheel, { passive: false }],
  ];
  for (const [name, listener, options] of listeners) {
    element.addEventListener(name, listener as EventListener, options);
  }
  return () => {
    for (const [name, listener] of listeners) element.removeEventListener(name, listener as EventListener);
  };
}
