import { useMemo } from "preact/hooks";
import { choice, link, number, pageParam } from "../../address";
import { useLoadedRuns } from "../../data/loaded";
import { nameOf, source } from "../../data/state";
import type { Sample } from "../../data/types";
import { Empty } from "../../ui/empty";
import { RunLabel } from "../../ui/run-label";
import { Segmented } from "../../ui/segmented";
import { stepText } from "../../ui/step-slider";
import { plural } from "../../words";
import { PageSteps, shownStep } from "../step-param";
import { changedParts } from "./text-diff";
import { compareSteps, continuation, promptsOf, sampleAt, stepsOf } from "./timeline";
import "./samples.css";

export const MOST_RUNS = 12;
const LONGEST = 20_000; // characters of one sample on the page

const promptParam = pageParam("prompt", number, 0);
const marksParam = pageParam("marks", choice("before", "first", "none"), "before");
const viewParam = pageParam("view", choice("step", "all"), "step");

/** What the models wrote, walked through by step; several runs side by side. */
export function SamplesView({ runs }: { runs: readonly string[] }) {
  const shown = runs.slice(0, MOST_RUNS);
  const answers = useLoadedRuns(shown, "samples", (id, signal) => source().samples(id, signal), ["samples"]);
  const samples = useMemo(
    () => new Map(shown.map((id) => [id, answers.get(id)?.value ?? []])),
    [answers, shown.join("\n")],
  );
  const prompts = useMemo(() => promptsOf(samples.values()), [samples]);
  const steps = useMemo(() => stepsOf(samples.values()), [samples]);
  const problems = shown.flatMap((id) => answers.get(id)?.problem ?? []);
  if (steps.length === 0) {
    if (answers.size < shown.length) return <p class="loading">reading samples …</p>;
    return (
      <Empty title={problems[0] ?? "No samples yet"}>
        <p>
          A language model writes some as it trains: every so many steps (<code>--sample-every</code>), to prompts of
          your choice (<code>--prompt</code>).
        </p>
      </Empty>
    );
  }
  const index = shownStep(steps);
  const several = shown.length > 1;
  const prompt = prompts[promptParam.value] ?? prompts[0] ?? "";
  return (
    <div class="samples">
      <div class="toolbar">
        {viewParam.value === "step" || several ? (
          <PageSteps label="samples" steps={steps} />
        ) : (
          <span class="dim">{plural(steps.length, "step")}, the latest first</span>
        )}
        <span class="grow" />
        {!several && (
          <Segmented
            label="What is shown"
            options={["step", "all"]}
            names={{ step: "one step", all: "all steps" }}
            value={viewParam.value}
            onChange={(view) => {
              viewParam.value = view;
            }}
          />
        )}
        <Segmented
          label="What is marked"
          options={several ? ["before", "first", "none"] : ["before", "none"]}
          names={{
            before: "new since the step before",
            first: `other than ${nameOf(shown[0] ?? "")}`,
            none: "no marks",
          }}
          value={marksParam.value}
          onChange={(marks) => {
            marksParam.value = marks;
          }}
        />
      </div>
      {prompts.length > 1 && <Prompts prompts={prompts} chosen={prompt} />}
      {several ? (
        <div class="sample-grid">
          {shown.map((id) => (
            <RunSample
              key={id}
              id={id}
              samples={samples}
              first={shown[0] ?? id}
              prompt={prompt}
              step={steps[index] ?? null}
            />
          ))}
        </div>
      ) : viewParam.value === "all" ? (
        <AllSteps samples={samples.get(shown[0] ?? "") ?? []} prompt={prompt} />
      ) : (
        <OneRun samples={samples.get(shown[0] ?? "") ?? []} prompt={prompt} step={steps[index] ?? null} />
      )}
      {runs.length > MOST_RUNS && (
        <p class="faint">
          {plural(MOST_RUNS, "run")} of {runs.length}, the first of those selected.
        </p>
      )}
    </div>
  );
}

function Prompts({ prompts, chosen }: { prompts: readonly string[]; chosen: string }) {
  return (
    <div class="prompts" role="tablist" aria-label="Prompts">
      {prompts.slice(0, 50).map((prompt, index) => (
        <button
          key={prompt}
          type="button"
          role="tab"
          aria-selected={prompt === chosen}
          onClick={() => {
            promptParam.value = index;
          }}
        >
          {prompt || "(no prompt)"}
        </button>
      ))}
    </div>
  );
}

interface RunSampleProps {
  id: string;
  samples: ReadonlyMap<string, readonly Sample[]>;
  first: string;
  prompt: string;
  step: number | null;
}

function RunSample({ id, samples, first, prompt, step }: RunSampleProps) {
  const [sample, before] = sampleAt(samples.get(id) ?? [], prompt, step);
  const other =
    marksParam.value === "first" ? (id === first ? null : sampleAt(samples.get(first) ?? [], prompt, step)[0]) : before;
  return (
    <article class="card sample">
      <h2>
        <a href={link(`/run/${encodeURIComponent(id)}/samples`)}>
          <RunLabel id={id} />
        </a>
        <em>{sample ? stepText(sample.step) : ""}</em>
      </h2>
      {sample ? <SampleText sample={sample} other={other} /> : <p class="faint">nothing to this prompt up to here</p>}
    </article>
  );
}

function OneRun({ samples, prompt, step }: { samples: readonly Sample[]; prompt: string; step: number | null }) {
  const [sample, before] = sampleAt(samples, prompt, step);
  return (
    <article class="card sample large">
      {sample && compareSteps(sample.step, step) < 0 && (
        <h2>
          <em>{stepText(sample.step)}</em>
        </h2>
      )}
      {sample ? <SampleText sample={sample} other={before} /> : <p class="faint">nothing to this prompt up to here</p>}
    </article>
  );
}

function AllSteps({ samples, prompt }: { samples: readonly Sample[]; prompt: string }) {
  const ofPrompt = samples.filter((sample) => sample.prompt === prompt).sort((a, b) => compareSteps(a.step, b.step));
  return (
    <ol class="sample-list" reversed>
      {ofPrompt
        .map((sample, index) => (
          <li key={`${sample.step} ${sample.t}`}>
            <span class="sample-step">{stepText(sample.step)}</span>
            <SampleText sample={sample} other={ofPrompt[index - 1] ?? null} />
          </li>
        ))
        .reverse()}
    </ol>
  );
}

function SampleText({ sample, other }: { sample: Sample; other: Sample | null }) {
  const { prompt, text } = continuation(sample);
  const cut = text.slice(0, LONGEST);
  const marked = other !== null && marksParam.value !== "none";
  const parts = useMemo(() => {
    return marked ? changedParts(continuation(other).text.slice(0, LONGEST), cut) : [{ text: cut, changed: false }];
  }, [marked, other?.text, cut]);
  return (
    <pre>
      <b>{prompt}</b>
      {parts.map((part, index) => (part.changed ? <mark key={index}>{part.text}</mark> : part.text))}
      {text.length > LONGEST && <span class="faint"> … ({plural(text.length - LONGEST, "character")} more)</span>}
    </pre>
  );
}
