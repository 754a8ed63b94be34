import { colourOf, known, nameOf } from "../data/state";
import { count } from "../words";
import "./run-label.css";

/** The square in the colour of a run; hollow where the run is not shown. */
export function Dot({ id, off = false }: { id: string; off?: boolean }) {
  return <span class={`dot${off ? " off" : ""}`} style={{ "--run": colourOf(id) }} aria-hidden="true" />;
}

/** The name of a run with its colour. */
export function RunLabel({ id }: { id: string }) {
  return (
    <span class="run-label">
      <Dot id={id} />
      <span class="clip">{nameOf(id)}</span>
    </span>
  );
}

/** How a run stands, in a word or its step: never by colour alone. */
export function Progress({ id }: { id: string }) {
  const row = known.value.get(id);
  if (!row) return null;
  if (row.warning && row.status !== "live") return <small class="progress warn">{row.warning}</small>;
  return (
    <small class={`progress ${row.status}`}>
      {row.status === "live" && <span class="unseen">live, step </span>}
      {row.status === "completed" || row.status === "live" ? count(row.step) : row.status}
    </small>
  );
}
