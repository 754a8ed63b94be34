import { RunActions } from "../../actions/run-actions";
import { link, navigate } from "../../address";
import { isMarked, known, marked, nameOf } from "../../data/state";
import type { RunDetail } from "../../data/types";
import { Button } from "../../ui/button";
import { Dot, RunLabel } from "../../ui/run-label";
import { age, compact, count, duration, number } from "../../words";

const STATUS_TEXT: Record<string, string> = {
  live: "training",
  completed: "completed",
  interrupted: "interrupted",
  aborted: "aborted",
  errored: "failed",
  crashed: "crashed",
  stalled: "stalled",
  gone: "gone",
};
const MOST_FORKS = 12;

/** Name, status, progress, remaining time, speed and family of a run. */
export function RunHeader({ detail }: { detail: RunDetail }) {
  const row = known.value.get(detail.row.id) ?? detail.row;
  const live = row.status === "live";
  const labels = [row.recipe, row.experiment, row.group].filter((label): label is string => label !== null);
  return (
    <header class="run-header">
      <div class="run-name">
        <Dot id={row.id} />
        <h1 class="clip">{row.name}</h1>
        <span class={`status ${row.status}`}>{STATUS_TEXT[row.status] ?? row.status}</span>
        {row.warning && <span class="warn">▲ {row.warning}</span>}
        {row.tags.map((tag) => (
          <span key={tag} class="tag">
            {tag}
          </span>
        ))}
        {row.hidden && <span class="tag">hidden</span>}
        <span class="grow" />
        <Selection id={row.id} />
        <RunActions id={row.id} />
      </div>
      <p class="run-line">
        {row.name !== row.id && <span class="mono">{row.id}</span>}
        {labels.map((label) => (
          <span key={label}>{label}</span>
        ))}
        <Family detail={detail} />
      </p>
      <dl class="run-figures">
        <Progress step={row.step} total={row.total_steps} />
        {live && detail.remaining !== null && <Fact name="left" text={duration(detail.remaining)} />}
        <Fact name={live ? "for" : "took"} text={duration(detail.elapsed)} />
        {detail.tokens_per_second !== null && (
          <Fact name="speed" text={`${compact(detail.tokens_per_second)} tokens/s`} />
        )}
        <MainMetric detail={detail} />
        {!live && <Fact name="last event" text={`${age(row.age)}${row.age < 2 ? "" : " ago"}`} />}
      </dl>
    </header>
  );
}

function Fact({ name, text }: { name: string; text: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{text}</dd>
    </div>
  );
}

/** Whether the run is one of those that charts, samples and comparisons show. */
function Selection({ id }: { id: string }) {
  const isSelected = isMarked.value.has(id);
  const select = () => {
    marked.value = isSelected ? marked.value.filter((other) => other !== id) : [...marked.value, id];
  };
  return (
    <>
      <Button pressed={isSelected} onClick={select} title="for charts, samples and comparisons of several runs">
        {isSelected ? "selected" : "select"}
      </Button>
      {isSelected && marked.value.length > 1 && (
        <Button onClick={() => navigate("/compare")}>compare {marked.value.length}</Button>
      )}
    </>
  );
}

interface ProgressProps {
  step: number | null;
  total: number | null;
}

function Progress({ step, total }: ProgressProps) {
  const share = step !== null && total ? Math.min(1, step / total) : null;
  return (
    <div class="run-progress">
      <dt>step</dt>
      <dd>
        {count(step)}
        {total !== null && <span class="faint"> of {count(total)}</span>}
        {share !== null && (
          <>
            <meter min={0} max={1} value={share} aria-label="Steps done">
              {Math.round(share * 100)} %
            </meter>
            <span class="faint">{Math.floor(share * 100)} %</span>
          </>
        )}
      </dd>
    </div>
  );
}

function MainMetric({ detail }: { detail: RunDetail }) {
  const metric = detail.metrics.find(({ key }) => key === detail.row.metric);
  if (!metric) return null;
  return (
    <div>
      <dt>{metric.key}</dt>
      <dd>
        {number(metric.last)}
        {metric.best !== null && metric.best !== metric.last && (
          <span class="faint">
            {" "}
            best {number(metric.best)}
            {metric.best_step !== null && ` at ${count(metric.best_step)}`}
          </span>
        )}
      </dd>
    </div>
  );
}

function Family({ detail: { family, row } }: { detail: RunDetail }) {
  const parent = family.ancestors[0];
  const forks = family.children.slice(0, MOST_FORKS);
  return (
    <>
      {parent && (
        <span>
          from <RunLink id={parent.id} />
          {parent.step !== null && ` at step ${count(parent.step)}`}
          {family.ancestors.length > 1 && (
            <span class="faint">
              {" "}
              ←{" "}
              {family.ancestors
                .slice(1)
                .map(({ id }) => nameOf(id))
                .join(" ← ")}
            </span>
          )}
        </span>
      )}
      {row.compare_to !== null && (
        <span>
          beside <RunLink id={row.compare_to} />
        </span>
      )}
      {forks.length > 0 && (
        <span>
          {family.children.length === 1 ? "fork: " : `${family.children.length} forks: `}
          {forks.map((id, index) => (
            <span key={id}>
              {index > 0 && ", "}
              <RunLink id={id} />
            </span>
          ))}
          {family.children.length > MOST_FORKS && " …"}
        </span>
      )}
    </>
  );
}

function RunLink({ id }: { id: string }) {
  return (
    <a class="run-link" href={link(`/run/${encodeURIComponent(id)}`)}>
      <RunLabel id={id} />
    </a>
  );
}
