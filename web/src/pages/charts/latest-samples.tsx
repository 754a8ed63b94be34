import { link } from "../../address";
import { useLoadedRuns } from "../../data/loaded";
import { source } from "../../data/state";
import { RunLabel } from "../../ui/run-label";
import { count } from "../../words";
import { continuation, promptsOf, sampleAt, stepsOf } from "../samples/timeline";
import "./latest-samples.css";

const MOST_RUNS = 6;
const LONGEST = 600; // characters; the samples page has the rest

/** Below the charts: what the runs wrote last, to one prompt. Nothing where none of them writes. */
export function LatestSamples({ runs, columns }: { runs: readonly string[]; columns: number }) {
  const shown = runs.slice(0, MOST_RUNS);
  const answers = useLoadedRuns(shown, "samples", (id, signal) => source().samples(id, signal), ["samples"]);
  const all = shown.map((id) => answers.get(id)?.value ?? []);
  const [prompt] = promptsOf(all);
  const step = stepsOf(all).at(-1);
  if (prompt === undefined || step === undefined) return null;
  const written = shown.flatMap((id, at) => {
    const [sample] = sampleAt(all[at] ?? [], prompt, step);
    return sample ? [{ id, sample }] : [];
  });
  return (
    <section class="chart-section" aria-label="latest samples">
      <div class="chart-heading">
        <h2>
          <a href={link("/samples")}>samples</a>
        </h2>
        <span>
          {step === null ? "" : `step ${count(step)} · `}“{prompt}”
        </span>
      </div>
      <div class="latest-samples" style={{ "--columns": String(columns) }}>
        {written.map(({ id, sample }) => (
          <article key={id}>
            <h3>
              <RunLabel id={id} />
              {sample.step !== step && sample.step !== null && <small>step {count(sample.step)}</small>}
            </h3>
            <pre>
              <b>{sample.prompt}</b>
              {continuation(sample).text.slice(0, LONGEST)}
            </pre>
          </article>
        ))}
      </div>
    </section>
  );
}
