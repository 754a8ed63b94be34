/** Which metrics the runs that are shown have; kept up to date. */
import { useLayoutEffect, useState } from "preact/hooks";
import { changes, known, source } from "../../data/state";
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
    let answered: readonly RunMetrics[] = [];
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
          (answer) => {
            if (signal.aborted) return;
            answered = answer;
            setMetrics(answer);
          },
          (error: unknown) => !signal.aborted && setMetrics(error instanceof Error ? error.message : String(error)),
        );
    };
    const again = () => {
      timer ??= setTimeout(load, AGAIN_AFTER);
    };
    load();
    // A live run may have logged its first rows between the question and the moment from which the stream tells of it.
    const mayLack = (id: string) =>
      known.peek().get(id)?.status === "live" || !answered.find((run) => run.id === id)?.metrics.length;
    const ends = [
      changes.watch(ids),
      changes.onWatched((watched) => {
        if (watched.some((id) => ids.includes(id) && mayLack(id))) again();
      }),
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
