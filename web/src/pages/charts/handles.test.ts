// @vitest-environment happy-dom
import { expect, it } from "vitest";
import { dragHandle } from "./handles";

function press(button: number): HTMLElement {
  const cell = document.createElement("div");
  cell.className = "chart-cell";
  cell.addEventListener("pointerdown", (event) => dragHandle("loss", ["loss"]).onPointerDown(event));
  cell.dispatchEvent(new PointerEvent("pointerdown", { button }));
  return cell;
}

it("a chart moves while the main button holds it, and no other", () => {
  const held = press(0);
  expect(held.classList.contains("moving")).toBe(true);
  dispatchEvent(new PointerEvent("pointerup"));
  expect(held.classList.contains("moving")).toBe(false);
  expect(press(2).classList.contains("moving")).toBe(false);
});
