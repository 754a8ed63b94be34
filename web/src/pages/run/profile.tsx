import { useMemo } from "preact/hooks";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import type { OpTiming } from "../../data/types";
import { Empty } from "../../ui/empty";
import { number, size } from "../../words";
import { PageSteps, shownStep } from "../step-param";
import "./artifacts.css";
import "./profile.css";

const TRACE = "profile.json.gz";
const OTHER = "other";

/** Operations of a profile by time, the longest first and the rest last; `share` of the whole step. */
export function profileRows({ buckets, compute_us }: OpTiming): { name: string; us: number; share: number }[] {
  const spent = Object.values(buckets).reduce((total, us) => total + us, 0);
  const whole = Math.max(compute_us, spent) || 1;
  const rows = Object.entries(buckets).map(([name, us]) => ({ name, us, share: us / whole }));
  return rows
    .filter(({ us }) => us > 0)
    .sort((a, b) => Number(a.name === OTHER) - Number(b.name === OTHER) || b.us - a.us);
}

/** Where the time of a step went, as `--profile` saw it. */
export function ProfileTab({ id }: { id: string }) {
  const { value, problem } = useLoaded(id, "profile", (run, signal) => source().profile(run, signal), [
    "artifacts",
    "status",
  ]);
  const { value: artifacts } = useLoaded(id, "artifacts", (run, signal) => source().artifacts(run, signal), [
    "artifacts",
  ]);
  const trace = useMemo(() => artifacts?.find(({ name }) => name === TRACE)?.items.at(-1), [artifacts]);
  const steps = value?.map(({ step }) => step) ?? [];
  const timing = value?.[shownStep(steps)];
  if (!timing) {
    if (!value && !problem) return <p class="loading">reading the profile …</p>;
    return (
      <Empty title={problem ?? "No profile"}>
        <p>
          <code>linnet train … --profile</code> looks closely at ten steps.
        </p>
      </Empty>
    );
  }
  const rows = profileRows(timing);
  const longest = Math.max(...rows.map(({ us }) => us), 1);
  return (
    <div class="profile">
      <div class="toolbar">
        <PageSteps label="profiles" steps={steps} />
        <span>
          {number(timing.compute_us / 1000)} ms <span class="faint">a step</span>
        </span>
      </div>
      <table class="profile-table">
        <thead>
          <tr>
            <th>operation</th>
            <th class="num">ms</th>
            <th class="num">of a step</th>
            <th>
              <span class="unseen">as a bar</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, us, share }) => (
            <tr key={name}>
              <td class="mono clip" title={name}>
                {name}
              </td>
              <td class="num">{number(us / 1000, 3)}</td>
              <td class="num">{(100 * share).toFixed(1)} %</td>
              <td aria-hidden="true">
                <span
                  class={`profile-bar${name === OTHER ? " rest" : ""}`}
                  style={{ width: `${(100 * us) / longest}%` }}
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      {trace && !source().holds(id, trace.number) && (
        <p class="faint">The trace, {size(trace.bytes)}, is not in this report; it is in the run’s folder.</p>
      )}
      {trace && source().holds(id, trace.number) && (
        <p class="artifact-facts">
          <a href={source().artifactAddress(id, trace.number)} download={TRACE}>
            download the trace
          </a>
          <span class="faint">{size(trace.bytes)}; Perfetto and chrome://tracing open it</span>
        </p>
      )}
    </div>
  );
}
