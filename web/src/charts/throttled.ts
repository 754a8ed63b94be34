import type { ReadonlySignal } from "@preact/signals";
import { useEffect, useState } from "preact/hooks";
import { isHandsOn } from "./frames";

const WHILE_HANDS_ON = 200; // milliseconds

/** The value of a signal, looked at again at most every so many milliseconds: for what need not follow each row, nor a drag. */
export function useThrottled<T>(source: ReadonlySignal<T>, every: number): T {
  const [value, setValue] = useState<T>(() => source.peek());
  useEffect(() => {
    let last = Number.NEGATIVE_INFINITY;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const take = () => {
      timer = undefined;
      if (isHandsOn()) {
        timer = setTimeout(take, WHILE_HANDS_ON);
        return;
      }
      last = performance.now();
      setValue(() => source.peek());
    };
    const end = source.subscribe(() => {
      const wait = last + every - performance.now();
      if (wait <= 0 && timer === undefined) take();
      else timer ??= setTimeout(take, Math.max(0, wait));
    });
    return () => {
      clearTimeout(timer);
      end();
    };
  }, [source, every]);
  return value;
}
