// @vitest-environment happy-dom
import { beforeEach, describe, expect, test, vi } from "vitest";
import { type GestureTarget, listen } from "./gestures";

const BOX = { left: 50, top: 10, width: 200, height: 100 };
let element: HTMLElement;
let wheelZooms: boolean;
const target = {
  box: () => BOX,
  hover: vi.fn<GestureTarget["hover"]>(),
  select: vi.fn<GestureTarget["select"]>(),
  zoomTo: vi.fn<GestureTarget["zoomTo"]>(),
  zoomBy: vi.fn<GestureTarget["zoomBy"]>(),
  panBy: vi.fn<GestureTarget["panBy"]>(),
  zoomOut: vi.fn<GestureTarget["zoomOut"]>(),
  wheelZooms: () => wheelZooms,
};

beforeEach(() => {
  vi.clearAllMocks();
  wheelZooms = false;
  element = document.createElement("div");
  element.setPointerCapture = () => {};
  listen(element, target);
});

function pointer(type: string, x: number, init: PointerEventInit = {}): void {
  const event = { pointerId: 1, pointerType: "mouse", clientX: x, clientY: 50, button: 0, bubbles: true, ...init };
  element.dispatchEvent(new PointerEvent(type, event));
}

/** False where the page does not scroll. happy-dom's own wheel has no place: a mouse has one. */
function wheel({ deltaX = 0, deltaY = 0, ctrlKey = false }): boolean {
  const event = new MouseEvent("wheel", { clientX: 150, clientY: 50, cancelable: true, ctrlKey });
  return element.dispatchEvent(Object.assign(event, { deltaX, deltaY, deltaMode: 0 }));
}

describe("a mouse", () => {
  test("that moves tells where it is, and that it left", () => {
    pointer("pointermove", 100);
    expect(target.hover).toHaveBeenLastCalledWith({ x: 100, y: 50 });
    pointer("pointermove", 20);
    expect(target.hover).toHaveBeenLastCalledWith(null);
  });

  test("that drags zooms to the stretch, whichever way it went", () => {
    pointer("pointerdown", 200);
    pointer("pointermove", 100);
    expect(target.select).toHaveBeenLastCalledWith({ from: 0.75, to: 0.25 });
    pointer("pointerup", 100);
    expect(target.zoomTo).toHaveBeenCalledExactlyOnceWith(0.25, 0.75);
    expect(target.select).toHaveBeenLastCalledWith(null);
  });

  test("that clicks with a shake of the hand does not zoom", () => {
    pointer("pointerdown", 100);
    pointer("pointermove", 103);
    pointer("pointerup", 103);
    expect(target.zoomTo).not.toHaveBeenCalled();
  });

  test("that drags with Shift pans", () => {
    pointer("pointerdown", 150, { shiftKey: true });
    pointer("pointermove", 130);
    expect(target.panBy).toHaveBeenLastCalledWith(0.1);
    pointer("pointerup", 130);
    expect(target.zoomTo).not.toHaveBeenCalled();
  });

  test("double clicks to see all of it", () => {
    element.dispatchEvent(new MouseEvent("dblclick", { clientX: 150, clientY: 50 }));
    expect(target.zoomOut).toHaveBeenCalledOnce();
  });
});

describe("a wheel", () => {
  test("scrolls the page, unless it goes sideways or has Ctrl", () => {
    expect(wheel({ deltaY: 100 })).toBe(true);
    expect(target.zoomBy).not.toHaveBeenCalled();
    expect(wheel({ deltaX: 20 })).toBe(false);
    expect(target.panBy).toHaveBeenLastCalledWith(0.1);
    wheel({ deltaY: 10, ctrlKey: true });
    const [factor, around] = target.zoomBy.mock.lastCall ?? [];
    expect(factor).toBeGreaterThan(1);
    expect(around).toBe(0.5);
  });

  test("zooms by itself where the chart has the whole screen", () => {
    wheelZooms = true;
    expect(wheel({ deltaY: -100 })).toBe(false);
    expect(target.zoomBy.mock.lastCall?.[0]).toBeLessThan(1);
  });
});

describe("fingers", () => {
  const finger = (type: string, id: number, x: number) => pointer(type, x, { pointerId: id, pointerType: "touch" });

  test("one pans", () => {
    finger("pointerdown", 1, 150);
    finger("pointermove", 1, 170);
    expect(target.panBy).toHaveBeenLastCalledWith(-0.1);
  });

  test("two that part zoom in around what lies between them", () => {
    finger("pointerdown", 1, 140);
    finger("pointerdown", 2, 160);
    finger("pointermove", 2, 180);
    const [factor, around] = target.zoomBy.mock.lastCall ?? [];
    expect(factor).toBeCloseTo(0.5);
    expect(around).toBeCloseTo(0.55);
  });

  test("a tap shows what stands there", () => {
    finger("pointerdown", 1, 120);
    finger("pointerup", 1, 120);
    expect(target.hover).toHaveBeenLastCalledWith({ x: 120, y: 50 });
  });
});
