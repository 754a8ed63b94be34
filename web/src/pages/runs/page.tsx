/** All runs of the folder. */
import { useState } from "preact/hooks";
import { ask, isWritable, setHidden } from "../../actions/actions";
import { areHidden, runCommands } from "../../actions/commands";
import { navigate } from "../../address";
import { order, shownColumns } from "../../data/listing";
import { add, neighbour, toggleAll } from "../../data/selection";
import { sortBy } from "../../data/sorting";
import {
  cursor,
  family,
  filter,
  group,
  marked,
  reverse,
  sort,
  table,
  tableProblem,
  withHidden,
} from "../../data/state";
import { useCommands } from "../../keys";
import { Button } from "../../ui/button";
import { CommandLine, Empty } from "../../ui/empty";
import { FilterBox, focusFilter } from "../../ui/filter-box";
import { Toggle } from "../../ui/segmented";
import { plural } from "../../words";
import { ColumnsDialog } from "./columns-dialog";
import { EmptyFolder } from "./empty-folder";
import { mark, RunTable } from "./run-table";
import "./page.css";

/** The runs that a command is about: those marked, else the one at the cursor. */
function targets(): readonly string[] {
  if (marked.peek().length) return marked.peek();
  return cursor.peek() === null ? [] : [cursor.peek() as string];
}

function hasTargets(): boolean {
  return targets().length > 0;
}

function mayChange(): boolean {
  return hasTargets() && isWritable();
}

function move(step: number, extend: boolean): void {
  const from = cursor.peek();
  const next = neighbour(order.peek(), from, step);
  if (extend && next !== null) marked.replace(add(marked.peek(), from === null ? [next] : [from, next]));
  cursor.value = next;
}

/** Opens what is marked as charts, else the run at the cursor. */
function open(): void {
  const [first] = targets();
  if (marked.peek().length) navigate("/charts");
  else if (first !== undefined) navigate(`/run/${encodeURIComponent(first)}`);
}

/** The columns that the table can be ordered by, as they stand from left to right. */
function sortTerms(): string[] {
  return ["age", "run", "status", "step", "last", "best", ...shownColumns.peek().map((column) => column.term), "time"];
}

function sortByNext(): void {
  const terms = sortTerms();
  const next = terms[(terms.indexOf(sort.peek() || "age") + 1) % terms.length];
  if (next !== undefined) sortBy(next);
}

export function RunsPage() {
  const [choosing, setChoosing] = useState(false);
  useCommands([
    { keys: ["ArrowDown"], shown: "↑  ↓", section: "runs", text: "move", keyOnly: true, run: () => move(1, false) },
    { keys: ["ArrowUp"], shown: "", section: "runs", text: "", keyOnly: true, run: () => move(-1, false) },
    {
      keys: ["Shift+ArrowDown"],
      shown: "Shift+↑ ↓",
      section: "runs",
      text: "mark while moving",
      keyOnly: true,
      run: () => move(1, true),
    },
    { keys: ["Shift+ArrowUp"], shown: "", section: "runs", text: "", keyOnly: true, run: () => move(-1, true) },
    { keys: ["PageDown"], shown: "", section: "runs", text: "", keyOnly: true, run: () => move(15, false) },
    { keys: ["PageUp"], shown: "", section: "runs", text: "", keyOnly: true, run: () => move(-15, false) },
    { keys: ["Home"], shown: "", section: "runs", text: "", keyOnly: true, run: () => move(-1e9, false) },
    { keys: ["End"], shown: "", section: "runs", text: "", keyOnly: true, run: () => move(1e9, false) },
    {
      keys: ["Space"],
      section: "runs",
      text: "mark the run at the cursor",
      when: () => cursor.peek() !== null,
      run: () => cursor.peek() !== null && mark(cursor.peek() as string, false),
    },
    { keys: ["Enter"], section: "runs", text: "open the run; marked ones as charts", when: hasTargets, run: open },
    {
      keys: ["Ctrl+a"],
      section: "runs",
      text: "mark all, or none",
      run: () => {
        marked.value = toggleAll(marked.peek(), order.peek());
      },
    },
    { keys: ["u"], section: "runs", text: "no marks", run: () => (marked.value = []) },
    {
      keys: ["d"],
      section: "runs",
      text: "compare: what was set differently in the marked runs",
      run: () => navigate("/compare"),
    },
    {
      keys: ["p"],
      section: "runs",
      text: "a metric of the runs against a setting",
      run: () => navigate("/compare", { view: "scatter" }),
    },
    { keys: ["/"], section: "runs", text: "filter: words, tag:wide, loss<2 and lr>=1e-3", run: focusFilter },
    { keys: ["C"], section: "runs", text: "choose columns", run: () => setChoosing(true) },
    { keys: ["o"], section: "runs", text: "order by the next column", run: sortByNext },
    { keys: ["O"], section: "runs", text: "the other way round", run: () => (reverse.value = !reverse.peek()) },
    { keys: ["F"], section: "runs", text: "forks below their parents", run: () => (family.value = !family.peek()) },
    {
      keys: ["H"],
      section: "runs",
      text: "hidden runs too",
      run: () => {
        withHidden.value = !withHidden.peek();
      },
    },
    ...runCommands("runs", targets),
    { keys: ["n"], section: "runs", text: "write a note", when: mayChange, run: () => ask("note", targets()) },
  ]);
  const answer = table.value;
  if (!answer) return <NoTable />;
  if (answer.total === 0 && !answer.rows.length && !filter.value) return <EmptyFolder />;
  return (
    <div class="runs-page">
      <h1 class="unseen">Runs</h1>
      <div class="runs-bar">
        <FilterBox />
        <GroupBy />
        <Toggle label="forks" on={family.value} onChange={(on) => (family.value = on)} />
        <Toggle label="hidden" on={withHidden.value} onChange={(on) => (withHidden.value = on)} />
        <Button onClick={() => setChoosing(true)} title="Choose columns (C)">
          Columns
        </Button>
      </div>
      {marked.value.length ? <MarkedBar /> : <CountBar />}
      {answer.rows.length ? <RunTable /> : <Empty title="No run fits this filter." />}
      {choosing && <ColumnsDialog onClose={() => setChoosing(false)} />}
    </div>
  );
}

function NoTable() {
  if (tableProblem.value === null) return <p class="runs-wait faint">Reading the folder …</p>;
  return (
    <Empty title="The board cannot be read">
      <p>{tableProblem.value}</p>
      <CommandLine text="linnet board --web" />
    </Empty>
  );
}

/** Settings by which runs differ are the useful ones to group by; they come first. */
function GroupBy() {
  const shown = shownColumns.value.filter((column) => column.kind === "setting").map((column) => column.term);
  const others = (table.value?.settings ?? []).filter((name) => !shown.includes(name));
  const fields = ["experiment", "recipe", "group", "status", "tags", "parent"];
  const all = new Set([...fields, ...shown, ...others]);
  return (
    <label class="group-by">
      <span>group by</span>
      <select
        class="select"
        aria-label="group by"
        value={group.value}
        onChange={(event) => (group.value = event.currentTarget.value)}
      >
        <option value="">nothing</option>
        <optgroup label="what it is called">
          {fields.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </optgroup>
        {shown.length > 0 && (
          <optgroup label="columns">
            {shown.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </optgroup>
        )}
        <optgroup label="settings">
          {others.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </optgroup>
        {group.value && !all.has(group.value) && <option>{group.value}</option>}
      </select>
    </label>
  );
}

function CountBar() {
  const rows = table.value?.rows ?? [];
  const total = table.value?.total ?? 0;
  const live = rows.filter((row) => row.status === "live").length;
  const parts = [rows.length === total ? plural(total, "run") : `${plural(rows.length, "run")} of ${total}`];
  if (live) parts.push(`${live} live`);
  const unread = table.value?.unread;
  if (unread) parts.push(`reading ${plural(unread, "more run")} …`);
  return (
    <div class="count-bar">
      <span role="status">{parts.join(" · ")}</span>
      <span class="only-wide faint">
        <kbd>Space</kbd> mark <kbd>Enter</kbd> open <kbd>/</kbd> filter <kbd>?</kbd> keys
      </span>
    </div>
  );
}

function MarkedBar() {
  const ids = marked.value;
  const hidden = areHidden(ids);
  return (
    <div class="count-bar marked-bar" role="toolbar" aria-label="Marked runs">
      <b>{plural(ids.length, "run")} marked</b>
      <Button kind="main" onClick={() => navigate("/charts")}>
        Charts
      </Button>
      <Button onClick={() => navigate("/compare")}>Compare</Button>
      {isWritable() && (
        <>
          <Button onClick={() => ask("tags", ids)}>Tag</Button>
          {ids.length === 1 && <Button onClick={() => ask("name", ids)}>Rename</Button>}
          <Button onClick={() => ask("note", ids)}>Note</Button>
          <Button onClick={() => void setHidden(ids, !hidden)}>{hidden ? "Show again" : "Hide"}</Button>
          <Button onClick={() => ask("delete", ids)}>Delete</Button>
        </>
      )}
      <span class="grow" />
      <Button onClick={() => (marked.value = [])} title="No marks (u)">
        Clear
      </Button>
    </div>
  );
}
