/** The page as a report: the same, with its data in the file and nothing asked of anybody. */
import { render } from "preact";
import { navigate } from "./address";
import { App } from "./app";
import { ReportData, unpacked } from "./data/report/contents";
import { EmbeddedSource } from "./data/report/embedded";
import { chosenTheme, start } from "./data/state";
import { ReportBar } from "./report-bar";
import "./theme.css";

async function open(root: HTMLElement): Promise<void> {
  const element = document.getElementById("data");
  if (!element?.textContent) throw new Error("this page waits for data: linnet report RUN --out report.html fills it");
  const data = new ReportData(await unpacked(element.textContent));
  element.remove(); // its text is of no more use, and there is much of it
  const source = new EmbeddedSource(data);
  const { contents } = data;
  if (contents.theme) chosenTheme.value = contents.theme;
  if (!location.hash) navigate(contents.runs.length > 1 ? "/charts" : onlyRun(contents.runs), {}, { replace: true });
  start(source);
  root.classList.add("with-bar");
  render(
    <>
      <App />
      <ReportBar contents={contents} source={source} />
    </>,
    root,
  );
}

/** A report of one run opens with it. */
function onlyRun(runs: readonly { id: string }[]): string {
  const [run] = runs;
  return run ? `/run/${encodeURIComponent(run.id)}` : "/runs";
}

const root = document.getElementById("board");
if (root) {
  open(root).catch((error: unknown) => {
    root.textContent = error instanceof Error ? error.message : String(error);
  });
}
