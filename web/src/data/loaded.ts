/** What was asked of runs, each answer kept up to date while a component shows it. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RunPart } from "./source";
import { changes } from "./state";

export interface Loaded<T> {
  value: T | null;
  /** Why there is none, or why it may be old. */
  problem: string | null;
}

const AGAIN_AFTER = 300; // milliseconds: a run that writes much is asked anew a few times a second
const WAITING: Loaded<never> = { value: null, problem: null };

/**
 * Asks `load` for each run, and again when one of `parts` of it changes or the server is back.
 * `question` names what is asked: another one forgets the answers.
 */
export function useLoadedRuns<T>(
  ids: readonly string[],
  question: string,
  load: (id: string, signal: AbortSignal) => Promise<T>,
  parts: readonly RunPart[] = [],
): ReadonlyMap<string, Loaded<T>> {
  const [answers, setAnswers] = useState<{ question: string; of: ReadonlyMap<string, Loaded<T>> }>({
    question,
    of: new Map(),
  });
  const latestLoad = useRef(load);
  latestLoad.current = load;
  useEffect(() => {
    const ended = new AbortController();
    const timers = new Map<string, ReturnType<typeof setTimeout>>();
    const put = (id: string, change: (before: Loaded<T>) => Loaded<T>) =>
      setAnswers((now) => {
        const kept = now.question === question ? now.of : new Map<string, Loaded<T>>();
        return { question, of: new Map(kept).set(id, change(kept.get(id) ?? WAITING)) };
      });
    const ask = async (id: string) => {
      timers.delete(id);
      try {
        const value = await latestLoad.current(id, ended.signal);
        if (!ended.signal.aborted) put(id, () => ({ value, problem: null }));
      } catch (error) {
        const problem = error instanceof Error ? error.message : String(error);
        if (!ended.signal.aborted) put(id, (before) => ({ ...before, problem }));
      }
    };
    for (const id of ids) void ask(id);
    const endRun = changes.onRun((event) => {
      if (!ids.includes(event.id) || timers.has(event.id) || !event.what.some((part) => parts.includes(part))) return;
      timers.set(
        event.id,
        setTimeout(() => void ask(event.id), AGAIN_AFTER),
      );
    });
    const endReconnect = changes.onReconnect(() => {
      for (const id of ids) void ask(id);
    });
    return () => {
      ended.abort();
      endRun();
      endReconnect();
      for (const timer of timers.values()) clearTimeout(timer);
    };
  }, [question, ids.join("\n")]);
  return answers.question === question ? answers.of : new Map();
}

/** The same of one run. */
export function useLoaded<T>(
  id: string,
  question: string,
  load: (id: string, signal: AbortSignal) => Promise<T>,
  parts: readonly RunPart[] = [],
): Loaded<T> {
  return useLoadedRuns([id], question, load, parts).get(id) ?? WAITING;
}
