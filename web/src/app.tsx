/** The frame: header, navigation, side list, and the page that the address names. */
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { address, link, navigate, page } from "./address";
import { board, chosenTheme, theme } from "./data/state";
import { handleKey, useCommands } from "./keys";
import { ChartsPage } from "./pages/charts/page";
import { CheckpointsPage } from "./pages/checkpoints/page";
import { ComparePage } from "./pages/compare/page";
import { MachinePage } from "./pages/machine/page";
import { RunPage } from "./pages/run/page";
import { RunsPage } from "./pages/runs/page";
import { SamplesPage } from "./pages/samples/page";
import { Toasts } from "./ui/toast";
import "./app.css";

const PAGES = {
  runs: "Runs",
  charts: "Charts",
  compare: "Compare",
  samples: "Samples",
  checkpoints: "Checkpoints",
  machine: "Machine",
} as const;

/** What a page puts into the header, on the right: the axis, smoothing. */
export const headerControls = signal<ComponentChildren>(null);

function CurrentPage() {
  const [name, id = "", tab = ""] = address.value.path;
  switch (name) {
    case "charts":
      return <ChartsPage />;
    case "run":
      return <RunPage id={id} tab={tab} key={id} />;
    case "compare":
      return <ComparePage />;
    case "samples":
      return <SamplesPage />;
    case "checkpoints":
      return <CheckpointsPage />;
    case "machine":
      return <MachinePage />;
    default:
      return <RunsPage />;
  }
}

function Header() {
  return (
    <header class="header">
      <a class="mark" href={link("/runs")}>
        linnet
      </a>
      <span class="root clip">{board.value?.root}</span>
      <nav aria-label="Pages">
        {Object.entries(PAGES).map(([name, title]) => (
          <a key={name} href={link(`/${name}`)} aria-current={page.value === name ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <span class="grow" />
      <div class="controls">{headerControls.value}</div>
    </header>
  );
}

export function App() {
  useEffect(() => {
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  }, []);
  useCommands([
    { keys: ["r"], section: "everywhere", text: "all runs", run: () => navigate("/runs") },
    { keys: ["m"], section: "everywhere", text: "charts", run: () => navigate("/charts") },
    {
      keys: ["t"],
      section: "everywhere",
      text: "light or dark",
      run: () => {
        chosenTheme.value = theme.value === "dark" ? "light" : "dark";
      },
    },
  ]);
  return (
    <>
      <Header />
      <main class="page">
        <CurrentPage />
      </main>
      <Toasts />
    </>
  );
}
