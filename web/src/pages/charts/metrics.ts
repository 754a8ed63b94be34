/** Which metrics the runs that are shown have; kept up to date. */
import { useLayoutEffect, useState } from "preact/hooks";
import { changes, source } from "../../data/state";
import type { RunMetrics } from "../../data/types";

const AGAIN_AFTER = 400; // milliseconds

/** Null as long as nothing has arrived; a text where it cannot. */
export function useMetrics(runs: readonly string[]): readonly RunMetrics[] | string | null {
  const [metrics, setMetrics] = useState<readonly RunMetrics[] | string | null>(null);
  const names = runs.join("\n");
  // Asked for at once: an effect would wait for a frame to be painted, and charts wait for this.
  useLayoutEffect(() => {
    const ids = names ? names.split("\n") : [];
    let asking = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const load = () => {
      timer = undefined;
      asking.abort();
      asking = new AbortController();
      const { signal } = asking;
      if (!ids.length) {
        setMetrics(null);
        return;
      }
      source()
        .metrics(ids, signal)
        .then(
          (answer) => !signal.aborted && setMetrics(answer),
          (error: unknown) => !signal.aborted && setMetrics(error instanceof Error ? error.message : String(error)),
        );
    };
    const again = () => {
      timer ??= setTimeout(load, AGAIN_AFTER);
    };
    load();
    const ends = [
      changes.onRun((event) => {
        if (event.parts.includes("metrics") && ids.includes(event.id)) again();
      }),
      changes.onReconnect(again),
    ];
    return () => {
      asking.abort();
      clearTimeout(timer);
      for (const end of ends) end();
    };
  }, [names]);
  return metrics;
}
