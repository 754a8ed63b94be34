/** Changes pushed by the server (server-sent events), with a reconnect that waits longer each time, and at most 10 s. */
import type { ChangesListener } from "./source";

const FIRST_WAIT = 500; // milliseconds
const LONGEST_WAIT = 10_000;

/** Follows a stream of changes until the function that it gives is called. `address` is asked each time it is opened. */
export function followChanges(address: () => string, listener: ChangesListener): () => void {
  let stream: EventSource | null = null;
  let timer: ReturnType<typeof setTimeout> | undefined;
  let wait = FIRST_WAIT;
  let ended = false;

  function open(): void {
    clearTimeout(timer);
    stream = new EventSource(address());
    stream.onopen = () => {
      wait = FIRST_WAIT;
      listener.connected(true);
    };
    stream.onerror = () => {
      // The browser's own reconnect gives up for good after an answer that is no stream, as a proxy's 502 is.
      stream?.close();
      if (ended) return;
      listener.connected(false);
      timer = setTimeout(open, wait);
      wait = Math.min(wait * 2, LONGEST_WAIT);
    };
    stream.addEventListener("runs", (event) => listener.runs(JSON.parse(event.data)));
    stream.addEventListener("series", (event) => listener.series(JSON.parse(event.data)));
    stream.addEventListener("run", (event) => listener.run(JSON.parse(event.data)));
  }

  function hurry(): void {
    if (!ended && stream?.readyState === EventSource.CLOSED) open();
  }

  open();
  addEventListener("online", hurry);
  return () => {
    ended = true;
    clearTimeout(timer);
    removeEventListener("online", hurry);
    stream?.close();
  };
}
