import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** How wide an element is, in pixels, kept up to date; `fallback` before it is known. */
export function useWidth<T extends Element>(fallback: number): [{ current: T | null }, number] {
  const element = useRef<T>(null);
  const [width, setWidth] = useState(fallback);
  useLayoutEffect(() => {
    const watched = element.current;
    if (!watched) return;
    const measure = () => {
      const measured = Math.floor(watched.getBoundingClientRect().width);
      if (measured > 0) setWidth(measured);
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(watched);
    return () => observer.disconnect();
  }, []);
  return [element, width];
}
