/** The frame: header, the list of runs beside the page, and the page that the address names. */
import { useEffect } from "preact/hooks";
import { ActionDialogs } from "./actions/dialogs";
import { address, navigate, page } from "./address";
import { board, cursor, shown, table } from "./data/state";
import { Header, PAGES, switchTheme } from "./header";
import { Help, openHelp } from "./help";
import { handleKey, useCommands } from "./keys";
import { ChartsPage } from "./pages/charts/page";
import { CheckpointsPage, ComparePage, MachinePage, RunPage, SamplesPage } from "./pages/later";
import { EmptyFolder } from "./pages/runs/empty-folder";
import { RunsPage } from "./pages/runs/page";
import { openPalette, Palette } from "./palette";
import { SideList, SideSheet } from "./side/side";
import { folded, toggleSide } from "./side/state";
import { Toasts } from "./ui/toast";
import "./app.css";

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

/** The run that a key without a run of its own is about: that of the page, at the cursor, else the first shown. */
function currentRun(): string | undefined {
  const [name, id] = address.peek().path;
  return (name === "run" ? id : undefined) ?? cursor.peek() ?? shown.peek()[0];
}

function openTab(tab: string): void {
  const id = currentRun();
  if (id !== undefined) navigate(`/run/${encodeURIComponent(id)}/${tab}`);
}

function newest(): void {
  const rows = table.peek()?.rows ?? [];
  const latest = rows.reduce<(typeof rows)[number] | undefined>(
    (best, row) => (best === undefined || row.created > best.created ? row : best),
    undefined,
  );
  if (latest) navigate(`/run/${encodeURIComponent(latest.id)}`);
}

/** Of the runs that are shown the next one, at the same tab. */
function nextRun(): void {
  const [name, id = "", tab] = address.peek().path;
  const runs = shown.peek();
  const next = runs[(runs.indexOf(name === "run" ? id : "") + 1) % runs.length];
  if (next !== undefined) navigate(`/run/${encodeURIComponent(next)}${tab ? `/${tab}` : ""}`);
}

/** Another page in the order of the header. */
function turn(step: number): void {
  const names = Object.keys(PAGES);
  const at = Math.max(0, names.indexOf(page.peek()));
  navigate(`/${names[(at + step + names.length) % names.length]}`);
}

function useGlobalCommands(): void {
  const everywhere = "everywhere";
  useCommands([
    { keys: ["r"], section: everywhere, text: "all runs", run: () => navigate("/runs") },
    { keys: ["m"], section: everywhere, text: "charts", run: () => navigate("/charts") },
    { keys: ["a"], section: everywhere, text: "samples", run: () => navigate("/samples") },
    { keys: ["k"], section: everywhere, text: "checkpoints", run: () => navigate("/checkpoints") },
    { keys: ["y"], section: everywhere, text: "the machine", run: () => navigate("/machine") },
    {
      keys: ["d"],
      section: everywhere,
      text: "compare: what was set differently in the runs shown",
      run: () => navigate("/compare"),
    },
    {
      keys: ["c"],
      section: everywhere,
      text: "settings of the run and where it comes from",
      run: () => openTab("config"),
    },
    { keys: ["i"], section: everywhere, text: "artifacts of the run", run: () => openTab("artifacts") },
    { keys: ["n"], section: everywhere, text: "notes of the run", run: () => openTab("notes") },
    { keys: ["g"], section: everywhere, text: "the log of the run", run: () => openTab("log") },
    { keys: ["I"], section: everywhere, text: "the inside of the run", run: () => openTab("inside") },
    { keys: ["w"], section: everywhere, text: "of the runs shown, the next", run: nextRun },
    { keys: ["N"], section: everywhere, text: "open the newest run", run: newest },
    { keys: ["]"], section: everywhere, text: "the next page", keyOnly: true, run: () => turn(1) },
    { keys: ["["], section: everywhere, text: "the page before", keyOnly: true, run: () => turn(-1) },
    { keys: ["q", "Backspace"], section: everywhere, text: "back", run: () => history.back() },
    { keys: ["\\"], section: everywhere, text: "the list of runs beside the page", run: toggleSide },
    { keys: ["t"], section: everywhere, text: "light or dark", run: switchTheme },
    { keys: ["?"], section: everywhere, text: "these keys", run: openHelp },
    {
      keys: ["Ctrl+k", "Ctrl+p"],
      section: everywhere,
      text: "every command and every run, by name",
      keyOnly: true,
      run: openPalette,
    },
  ]);
}

export function App() {
  useEffect(() => {
    addEventListener("keydown", handleKey);
    return () => removeEventListener("keydown", handleKey);
  }, []);
  useGlobalCommands();
  const name = page.value;
  const isEmpty = table.value?.total === 0 && !table.value.rows.length;
  const hasSide = name !== "runs" && name in PAGES && !isEmpty;
  useEffect(() => {
    const root = board.value?.root;
    document.title = root ? `${PAGES[name as keyof typeof PAGES] ?? "Run"} · ${root}` : "Linnet";
  }, [name, board.value]);
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("page")?.focus()}>
        To the page
      </button>
      <Header hasSide={hasSide} />
      <div class={`body${hasSide && !folded.value ? " with-side" : ""}`}>
        {hasSide && !folded.value && (
          <aside class="side-column" aria-label="Runs">
            <SideList />
          </aside>
        )}
        <main class="page" id="page" tabIndex={-1}>
          {isEmpty && name !== "runs" ? <EmptyFolder /> : <CurrentPage />}
        </main>
      </div>
      <SideSheet />
      <ActionDialogs />
      <Palette />
      <Help />
      <Toasts />
    </>
  );
}
