import { useMemo } from "preact/hooks";
import { flag, pageParam, text } from "../../address";
import { useLoadedRuns } from "../../data/loaded";
import { shown, source } from "../../data/state";
import type { ArtifactSeries } from "../../data/types";
import { useCommands } from "../../keys";
import { Empty } from "../../ui/empty";
import { RunLabel } from "../../ui/run-label";
import { Toggle } from "../../ui/segmented";
import { stepText } from "../../ui/step-slider";
import { plural } from "../../words";
import { compareSteps } from "../samples/timeline";
import { PageSteps, shownStep } from "../step-param";
import { ArtifactContent } from "./artifact-content";
import type { ArtifactItem } from "./media";
import "./artifacts.css";

const MOST_RUNS = 8;
const MOST_NAMES = 500;
const nameParam = pageParam("name", text, "");
const besideParam = pageParam("beside", flag, false);
const MEDIA_NAMES: Record<ArtifactSeries["media"], string> = {
  image: "images",
  table: "tables",
  histogram: "histograms",
  text: "texts",
  audio: "sounds",
  file: "files",
};

const keyOf = (series: ArtifactSeries) => `${series.media}:${series.name}`;

/** What was logged into a run: a list of names, and one of them walked through by step, beside other runs on demand. */
export function ArtifactsTab({ id }: { id: string }) {
  const others = shown.value.filter((run) => run !== id);
  const runs = besideParam.value ? [id, ...others].slice(0, MOST_RUNS) : [id];
  const answers = useLoadedRuns(runs, "artifacts", (run, signal) => source().artifacts(run, signal), ["artifacts"]);
  const own = answers.get(id);
  const all = own?.value ?? [];
  const chosen = all.find((series) => keyOf(series) === nameParam.value) ?? all[0];
  const move = (by: number) => {
    const next = all[Math.max(0, Math.min(all.length - 1, all.indexOf(chosen as ArtifactSeries) + by))];
    if (next) nameParam.replace(keyOf(next));
  };
  useCommands([
    { keys: ["ArrowUp"], shown: "↑", section: "artifacts", text: "the name before", run: () => move(-1) },
    { keys: ["ArrowDown"], shown: "↓", section: "artifacts", text: "the next name", run: () => move(1) },
  ]);
  if (!chosen) {
    if (!own) return <p class="loading">reading artifacts …</p>;
    return (
      <Empty title={own.problem ?? "Nothing was logged"}>
        <p>
          <code>run.image(step, "name", pixels)</code>, <code>run.table</code>, <code>run.histogram</code>,{" "}
          <code>run.text</code>, <code>run.audio</code> and <code>run.artifact(path)</code> keep things here.
        </p>
      </Empty>
    );
  }
  const ofRuns = runs.map((run) => ({
    run,
    series: (answers.get(run)?.value ?? []).find((one) => keyOf(one) === keyOf(chosen)),
  }));
  return (
    <div class="artifacts">
      <NameList all={all} chosen={chosen} />
      <div class="artifact-body">
        <ChosenSeries chosen={chosen} ofRuns={ofRuns} others={others.length} />
      </div>
    </div>
  );
}

function NameList({ all, chosen }: { all: readonly ArtifactSeries[]; chosen: ArtifactSeries }) {
  const kinds = useMemo(() => [...new Set(all.map((series) => series.media))], [all]);
  return (
    <nav class="artifact-names" aria-label="Artifacts">
      {kinds.map((media) => (
        <div key={media}>
          <h2>{MEDIA_NAMES[media]}</h2>
          {all.slice(0, MOST_NAMES).map(
            (series) =>
              series.media === media && (
                <button
                  key={series.name}
                  type="button"
                  aria-current={series === chosen}
                  onClick={() => {
                    nameParam.value = keyOf(series);
                  }}
                >
                  <span class="clip">{series.name}</span>
                  <small>{series.items.length > 1 ? series.items.length : ""}</small>
                </button>
              ),
          )}
        </div>
      ))}
      {all.length > MOST_NAMES && (
        <p class="faint">
          The first {MOST_NAMES} of {plural(all.length, "name")}.
        </p>
      )}
    </nav>
  );
}

interface ChosenSeriesProps {
  chosen: ArtifactSeries;
  ofRuns: readonly { run: string; series: ArtifactSeries | undefined }[];
  others: number;
}

function ChosenSeries({ chosen, ofRuns, others }: ChosenSeriesProps) {
  const steps = useMemo(() => {
    const all = new Set(ofRuns.flatMap(({ series }) => series?.items.map((item) => item.step) ?? []));
    return [...all].sort(compareSteps);
  }, [ofRuns.map(({ run, series }) => `${run} ${series?.items.length} ${keyOf(chosen)}`).join("\n")]);
  const index = shownStep(steps);
  const step = steps[index] ?? null;
  return (
    <>
      <div class="toolbar">
        <h2 class="artifact-title clip">{chosen.name}</h2>
        <PageSteps label="artifacts" steps={steps} />
        {others > 0 && (
          <Toggle
            label={`beside ${plural(others, "other run")}`}
            on={besideParam.value}
            onChange={(on) => {
              besideParam.value = on;
            }}
          />
        )}
      </div>
      <div class={ofRuns.length > 1 ? "artifact-grid" : ""}>
        {ofRuns.map(({ run, series }) => {
          const item = series ? itemAt(series.items, step) : null;
          return (
            <figure key={run} class="artifact">
              {ofRuns.length > 1 && (
                <figcaption>
                  <RunLabel id={run} /> <span class="faint">{item ? stepText(item.step) : ""}</span>
                </figcaption>
              )}
              {series && item ? (
                <ArtifactContent run={run} series={series} item={item} />
              ) : (
                <p class="faint">nothing of this name up to here</p>
              )}
            </figure>
          );
        })}
      </div>
    </>
  );
}

/** The latest at or before a step. */
function itemAt(items: readonly ArtifactItem[], step: number | null): ArtifactItem | null {
  return items.findLast((item) => compareSteps(item.step, step) <= 0) ?? null;
}
