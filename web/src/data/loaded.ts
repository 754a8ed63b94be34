/** What was asked of runs, each answer kept up to date while a component shows it. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { RunPart } from "./source";
import { changes, known } from "./state";

export interface Loaded<T> {
  value: T | null;
  /** Why there is none, or why it may be old. */
  problem: string | null;
}

/** What is followed: a part that the stream of changes names, or the run's row in the table, which changes with each step. */
export type FollowedPart = RunPart | "row";

const AGAIN_AFTER = 300; // milliseconds: a run that writes much is asked anew a few times a second
const ROW_AGAIN_AFTER = 2000;
const ROWS_AGAIN_AFTER = 3000; // of many runs
const WAITING: Loaded<never> = { value: null, problem: null };

/**
 * Asks `load` for each run, and again when one of `parts` of it changes or the server is back.
 * `question` names what is asked: another one forgets the answers.
 */
export function useLoadedRuns<T>(
  ids: readonly string[],
  question: string,
  load: (id: string, signal: AbortSignal) => Promise<T>,
  parts: readonly FollowedPart[] = [],
): ReadonlyMap<string, Loaded<T>> {
  return useAnswers(ids, question, load, (again) => {
    const endParts = changes.onRun((event) => {
      if (ids.includes(event.id) && event.parts.some((part) => parts.includes(part))) again(event.id, AGAIN_AFTER);
    });
    const endRows = changes.onRuns((event) => {
      if (!parts.includes("row")) return;
      for (const { id } of event.rows) if (ids.includes(id)) again(id, ROW_AGAIN_AFTER);
    });
    // A live run may have gone on between the question and the moment from which the stream tells of it.
    const endMissed = changes.onWatched((watched) => {
      for (const id of watched) {
        const row = known.peek().get(id);
        if (ids.includes(id) && (!row || row.status === "live")) again(id, 0);
      }
    });
    const endWatching = parts.length ? changes.watch(ids) : () => {};
    return () => {
      endParts();
      endRows();
      endMissed();
      endWatching();
    };
  });
}

/** The same of one run. */
export function useLoaded<T>(
  id: string,
  question: string,
  load: (id: string, signal: AbortSignal) => Promise<T>,
  parts: readonly FollowedPart[] = [],
): Loaded<T> {
  return useLoadedRuns([id], question, load, parts).get(id) ?? WAITING;
}

/** One answer about several runs, asked anew when the row of one of them changes. */
export function useLoadedTogether<T>(
  ids: readonly string[],
  question: string,
  load: (signal: AbortSignal) => Promise<T>,
): Loaded<T> {
  const all = ids.join("\n");
  const answers = useAnswers(
    [all],
    question,
    (_, signal) => load(signal),
    (again) =>
      changes.onRuns((event) => {
        if (event.rows.some((row) => ids.includes(row.id))) again(all, ROWS_AGAIN_AFTER);
      }),
  );
  return answers.get(all) ?? WAITING;
}

type Again = (key: string, after: number) => void;

function useAnswers<T>(
  keys: readonly string[],
  question: string,
  load: (key: string, signal: AbortSignal) => Promise<T>,
  listen: (again: Again) => () => void,
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
    let asked = 0;
    const answered = new Map<string, number>(); // the latest question of each key that has its answer
    const put = (key: string, change: (before: Loaded<T>) => Loaded<T>) =>
      setAnswers((now) => {
        const kept = now.question === question ? now.of : new Map<string, Loaded<T>>();
        return { question, of: new Map(kept).set(key, change(kept.get(key) ?? WAITING)) };
      });
    const ask = async (key: string) => {
      timers.delete(key);
      const number = ++asked;
      const isLatest = () => {
        if (ended.signal.aborted || number < (answered.get(key) ?? 0)) return false;
        answered.set(key, number);
        return true;
      };
      try {
        const value = await latestLoad.current(key, ended.signal);
        if (isLatest()) put(key, () => ({ value, problem: null }));
      } catch (error) {
        const problem = error instanceof Error ? error.message : String(error);
        if (isLatest()) put(key, (before) => ({ ...before, problem }));
      }
    };
    const askAll = () => {
      for (const key of keys) void ask(key);
    };
    askAll();
    const endListening = listen((key, after) => {
      if (!timers.has(key))
        timers.set(
          key,
          setTimeout(() => void ask(key), after),
        );
    });
    const endReconnect = changes.onReconnect(askAll);
    return () => {
      ended.abort();
      endListening();
      endReconnect();
      for (const timer of timers.values()) clearTimeout(timer);
    };
  }, [question, keys.join("\n")]);
  return answers.question === question ? answers.of : new Map();
}
