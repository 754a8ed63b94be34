import { expect, it } from "vitest";
import { followPointer } from "./drag";

it("what follows one drag hears nothing of the next, though that is cancelled and it was not", () => {
  const target = new EventTarget();
  const heard: string[] = [];
  const drag = (name: string) =>
    followPointer(target, { move: () => heard.push(`${name} moves`), end: () => heard.push(`${name} ends`) });
  drag("first");
  for (const type of ["pointermove", "pointerup"]) target.dispatchEvent(new Event(type));
  drag("second");
  for (const type of ["pointermove", "pointercancel", "pointermove"]) target.dispatchEvent(new Event(type));
  expect(heard).toEqual(["first moves", "first ends", "second moves", "second ends"]);
});
