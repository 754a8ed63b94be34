/** Follows a pointer from where it was pressed until it is let go; `end` is called once, whichever way that happens. */
export function followPointer(
  target: EventTarget,
  { move, end }: { move(event: PointerEvent): void; end(event: PointerEvent): void },
): void {
  const stop = (event: PointerEvent) => {
    target.removeEventListener("pointermove", move as EventListener);
    target.removeEventListener("pointerup", stop as EventListener);
    target.removeEventListener("pointercancel", stop as EventListener);
    end(event);
  };
  target.addEventListener("pointermove", move as EventListener);
  target.addEventListener("pointerup", stop as EventListener);
  target.addEventListener("pointercancel", stop as EventListener);
}
