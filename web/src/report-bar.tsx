/** The line at the foot of a report: of what, when, where and by what it was made, and what it does not hold. */
import { signal } from "@preact/signals";
import { page } from "./address";
import { boardView } from "./charts/view";
import type { Contents, LeftOut } from "./data/report/contents";
import type { EmbeddedSource } from "./data/report/embedded";
import { nameOf, shown } from "./data/state";
import { Dialog } from "./ui/dialog";
import { count, moment, plural, size } from "./words";
import "./report-bar.css";

const isOpen = signal(false);

interface ReportBarProps {
  contents: Contents;
  source: EmbeddedSource;
}

export function ReportBar({ contents, source }: ReportBarProps) {
  const { made, machine, version, runs } = contents;
  return (
    <footer class="report-bar">
      <span class="report-made">
        Report of {plural(runs.length, "run")} ·{" "}
        <time dateTime={new Date(made * 1000).toISOString()}>{moment(made)}</time>
        {machine && ` · ${machine}`} · Linnet {version}
      </span>
      <span class="grow" />
      <Coarseness source={source} />
      <button
        type="button"
        class="report-about"
        onClick={() => {
          isOpen.value = true;
        }}
      >
        {contents.left_out.length ? `${plural(contents.left_out.length, "part")} left out` : "about"}
      </button>
      {isOpen.value && <About contents={contents} />}
    </footer>
  );
}

/** Said only where a zoom is finer than the report. */
function Coarseness({ source }: { source: EmbeddedSource }) {
  const range = boardView.range.value;
  if (!range || !["charts", "run", "compare", "machine"].includes(page.value)) return null;
  const runs = page.value === "run" ? [...shown.value] : shown.value;
  const rows = source.coarseness(runs, boardView.axis.value, range);
  if (rows <= 1) return null;
  return (
    <span class="report-coarse" role="status">
      finer than this report holds: a point stands for {count(Math.round(rows))} steps
      <span class="only-wide"> · every one: linnet board --web</span>
    </span>
  );
}

function About({ contents }: { contents: Contents }) {
  const close = () => {
    isOpen.value = false;
  };
  return (
    <Dialog title={contents.title} onClose={close} kind="wide">
      <div class="report-facts">
        <p>
          Made {moment(contents.made)} on {contents.machine || "a machine without a name"} by Linnet {contents.version}.
          It is one file, asks for nothing from elsewhere and does not change.
        </p>
        <p>
          Of each metric with more than {count(contents.points)} rows it holds the least, greatest and mean value of{" "}
          {count(contents.points)} stretches, and the last rows as they were logged; shorter ones whole. Live changes,
          notes, tags and histograms of tensors need the folder: <code>linnet board --web</code>
        </p>
        <h3>Runs</h3>
        <ul>
          {contents.runs.map(({ id }) => (
            <li key={id}>
              {nameOf(id)}
              {nameOf(id) !== id && <span class="faint mono"> {id}</span>}
            </li>
          ))}
        </ul>
        <h3>Left out</h3>
        {contents.left_out.length ? <LeftOutTable entries={contents.left_out} /> : <p>Nothing.</p>}
      </div>
    </Dialog>
  );
}

function LeftOutTable({ entries }: { entries: readonly LeftOut[] }) {
  return (
    <table>
      <thead>
        <tr>
          <th scope="col">part</th>
          <th scope="col">run</th>
          <th scope="col" class="num">
            size
          </th>
        </tr>
      </thead>
      <tbody>
        {entries.map((entry) => (
          <tr key={`${entry.run} ${entry.part}`}>
            <td>{entry.part}</td>
            <td>{entry.run === null ? "all" : nameOf(entry.run)}</td>
            <td class="num">{size(entry.bytes)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
