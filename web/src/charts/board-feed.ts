/** The one feed of the page, which all charts share. */
import { computed, effect } from "@preact/signals";
import { changes, known, source } from "../data/state";
import { SeriesFeed } from "./feed";

let theFeed: SeriesFeed | null = null;

export function feed(): SeriesFeed {
  if (theFeed) return theFeed;
  const live = computed(() => [...known.value.values()].filter((row) => row.status === "live").map((row) => row.id));
  const started = new SeriesFeed(source, changes, (run) => known.peek().get(run)?.status === "live");
  theFeed = started;
  const names = computed(() => live.value.join("\n"));
  effect(() => {
    void names.value;
    started.refollow();
  });
  return started;
}
