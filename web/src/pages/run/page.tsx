import { useEffect, useRef } from "preact/hooks";
import { link, navigate } from "../../address";
import { useLoaded } from "../../data/loaded";
import { nameOf, source } from "../../data/state";
import type { RunDetail } from "../../data/types";
import { type Command, useCommands } from "../../keys";
import { Empty } from "../../ui/empty";
import { later } from "../../ui/later";
import { CheckpointsView } from "../checkpoints/view";
import { MachineView } from "../machine/view";
import { SamplesView } from "../samples/view";
import { ArtifactsTab } from "./artifacts";
import { ChartsTab } from "./charts";
import { ClassesTab } from "./classes";
import { ConfigTab } from "./config";
import { FlowTab } from "./flow-view";
import { RunHeader } from "./header";
import { LogTab, NotesTab } from "./journal";
import { ProfileTab } from "./profile";
import { TABS, type Tab, tabNamed, tabsOf } from "./tabs";
import "../page.css";
import "./run.css";

/** Fetched by those who look inside. */
const InsideTab = later(async () => (await import("../inside/inside-tab")).InsideTab);

/** One run; `tab` is the last part of the address, empty for the first tab. */
export function RunPage({ id, tab }: { id: string; tab: string }) {
  const { value: detail, problem } = useLoaded(id, "run", (run, signal) => source().run(run, signal), [
    "row",
    "status",
    "manifest",
    "metrics",
    "samples",
    "checkpoints",
    "artifacts",
    "inside",
  ]);
  const chosen = tabNamed(tab);
  const tabs = detail ? tabsOf(detail, chosen) : [];
  const open = (next: Tab | undefined) => next && navigate(`/run/${encodeURIComponent(id)}/${next}`);
  const step = (by: number) => open(tabs[(tabs.indexOf(chosen) + by + tabs.length) % tabs.length]);
  const keyed = (Object.keys(TABS) as Tab[]).filter((name) => TABS[name].key !== "");
  useCommands([
    ...keyed.map(
      (name): Command => ({
        keys: [TABS[name].key],
        section: "this run",
        text: TABS[name].title.toLowerCase(),
        run: () => open(name),
      }),
    ),
    { keys: ["]", ">"], section: "this run", text: "the next tab", run: () => step(1) },
    { keys: ["[", "<"], section: "this run", text: "the tab before", run: () => step(-1) },
  ]);
  const tabRow = useRef<HTMLElement>(null);
  const ready = Boolean(detail);
  useEffect(() => {
    // On a narrow screen the row of tabs is longer than it, and the chosen one may be out of sight.
    const nav = tabRow.current;
    const tab = nav?.querySelector<HTMLElement>("[aria-current]");
    if (nav && tab) nav.scrollLeft = tab.offsetLeft - nav.offsetLeft - (nav.clientWidth - tab.offsetWidth) / 2;
  }, [chosen, ready]);
  if (!detail) {
    if (problem === null) return <p class="content loading">reading {nameOf(id)} …</p>;
    return (
      <Empty title={problem}>
        <p>
          <a href={link("/runs")}>All runs</a>
        </p>
      </Empty>
    );
  }
  return (
    <div class="run-page">
      <div class="run-top">
        <RunHeader detail={detail} />
        {problem && <p class="warn">{problem}; what is shown is what was known.</p>}
        <nav class="tabs" aria-label="Parts of this run" ref={tabRow}>
          {tabs.map((name) => (
            <a
              key={name}
              href={link(`/run/${encodeURIComponent(id)}/${name}`)}
              aria-current={name === chosen ? "page" : undefined}
            >
              {TABS[name].title}
            </a>
          ))}
        </nav>
      </div>
      <div class={chosen === "charts" ? "" : "content"} key={chosen}>
        <TabBody tab={chosen} detail={detail} />
      </div>
    </div>
  );
}

function TabBody({ tab, detail }: { tab: Tab; detail: RunDetail }) {
  const { id } = detail.row;
  switch (tab) {
    case "charts":
      return <ChartsTab detail={detail} />;
    case "config":
      return <ConfigTab detail={detail} />;
    case "samples":
      return <SamplesView runs={[id]} />;
    case "checkpoints":
      return <CheckpointsView runs={[id]} />;
    case "machine":
      return <MachineView runs={[id]} />;
    case "artifacts":
      return <ArtifactsTab id={id} />;
    case "classes":
      return <ClassesTab id={id} />;
    case "profile":
      return <ProfileTab id={id} />;
    case "flow":
      return <FlowTab id={id} />;
    case "inside":
      return <InsideTab detail={detail} />;
    case "notes":
      return <NotesTab id={id} />;
    case "log":
      return <LogTab id={id} />;
  }
}
