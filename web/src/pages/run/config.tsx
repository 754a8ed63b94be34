import { useMemo } from "preact/hooks";
import { choice, flag, pageParam, text } from "../../address";
import { useLoaded } from "../../data/loaded";
import { nameOf, source } from "../../data/state";
import type { RunDetail } from "../../data/types";
import { CommandLine } from "../../ui/empty";
import { RunLabel } from "../../ui/run-label";
import { Segmented, Toggle } from "../../ui/segmented";
import { count, exact, moment, plural } from "../../words";
import { PageTitle } from "../page-title";
import { planRows } from "./plan";
import { type SettingRow, settingRows, settingText } from "./settings";
import "./config.css";
import "./plan.css";

type Against = "parent" | "default" | "nothing";
const wordsParam = pageParam("words", text, "");
const againstParam = pageParam<Against | "">("against", choice("parent", "default", "nothing", ""), "");
const onlyParam = pageParam("differing", flag, false);

/** Settings, what `auto` became, the plan, how the run ended and where it comes from. */
export function ConfigTab({ detail }: { detail: RunDetail }) {
  return (
    <div class="config">
      <Settings detail={detail} />
      <div>
        <Chosen detail={detail} />
        <Plan detail={detail} />
        <Ending detail={detail} />
        <Provenance detail={detail} />
      </div>
    </div>
  );
}

function Settings({ detail }: { detail: RunDetail }) {
  const parent = detail.family.ancestors[0]?.id ?? "";
  const hasDefaults = Object.keys(detail.defaults ?? {}).length > 0;
  const options: Against[] = [
    ...(parent ? ["parent" as const] : []),
    ...(hasDefaults ? ["default" as const] : []),
    "nothing",
  ];
  const against = options.find((option) => option === againstParam.value) ?? options[0] ?? "nothing";
  const { value: parentDetail } = useLoaded(
    parent,
    "run",
    async (id, signal) => (id ? source().run(id, signal) : null),
    ["manifest"],
  );
  const others =
    against === "parent" ? (parentDetail?.settings ?? null) : against === "default" ? withDefaults(detail) : null;
  const rows = useMemo(() => settingRows(detail.settings, others), [detail.settings, others]);
  const words = wordsParam.value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = rows.filter((row) => {
    const line = `${row.name} ${settingText(row.value)}`.toLowerCase();
    return words.every((word) => line.includes(word)) && (row.differs || !onlyParam.value || others === null);
  });
  const differing = rows.filter((row) => row.differs).length;
  return (
    <section aria-label="Settings">
      <PageTitle
        title="Settings"
        note={others ? `${differing} of ${plural(rows.length, "setting")} differ` : plural(rows.length, "setting")}
      />
      <div class="toolbar">
        <input
          class="search"
          type="search"
          placeholder="filter: lr, model.d_ …"
          aria-label="Filter settings"
          value={wordsParam.value}
          onInput={(event) => wordsParam.replace(event.currentTarget.value)}
        />
        {options.length > 1 && (
          <Segmented
            label="Compared with"
            options={options}
            names={{ parent: `against ${nameOf(parent)}`, default: "against the defaults", nothing: "alone" }}
            value={against}
            onChange={(next) => {
              againstParam.value = next;
            }}
          />
        )}
        {others && (
          <Toggle
            label="only what differs"
            on={onlyParam.value}
            onChange={(on) => {
              onlyParam.value = on;
            }}
          />
        )}
      </div>
      <table class="settings">
        <thead class="unseen">
          <tr>
            <th>setting</th>
            <th>value</th>
            <th>compared with</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <Setting key={row.name} row={row} chosen={detail.chosen} compared={others !== null} />
          ))}
        </tbody>
      </table>
      {shown.length === 0 && <p class="faint">No setting has these words.</p>}
    </section>
  );
}

/** The defaults for what the run tells; settings that no default is known of count as equal. */
function withDefaults(detail: RunDetail): Record<string, unknown> {
  return { ...detail.settings, ...detail.defaults };
}

function Setting({ row, chosen, compared }: { row: SettingRow; chosen: Record<string, unknown>; compared: boolean }) {
  const cut = row.name.indexOf(".") + 1;
  const name = row.name.slice(cut);
  const became = row.value === "auto" ? chosen[name] : undefined;
  return (
    <tr class={row.differs ? "differs" : ""}>
      <th scope="row">
        <span class="faint">{row.name.slice(0, cut)}</span>
        {name}
      </th>
      <td>
        {settingText(row.value)}
        {became !== undefined && <span class="faint"> → {settingText(became)}</span>}
      </td>
      {compared && (
        <td class="was">
          {row.differs && (
            <>
              <span class="unseen">instead of </span>
              {settingText(row.other)}
            </>
          )}
        </td>
      )}
    </tr>
  );
}

function Chosen({ detail: { chosen } }: { detail: RunDetail }) {
  const entries = Object.entries(chosen);
  if (entries.length === 0) return null;
  return (
    <section aria-label="Chosen by auto">
      <PageTitle title="Chosen by auto" note="what the run decided when it started" />
      <dl class="facts">
        {entries.map(([name, value]) => (
          <Fact key={name} name={name} value={settingText(value)} />
        ))}
      </dl>
    </section>
  );
}

function Fact({ name, value }: { name: string; value: string }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </>
  );
}

function Plan({ detail }: { detail: RunDetail }) {
  const rows = planRows(detail);
  if (rows.length === 0) return null;
  return (
    <section aria-label="Plan">
      <PageTitle title="Plan" note="and what happened" />
      <table class="plan">
        <thead>
          <tr>
            <td />
            <th class="num">plan</th>
            <th class="num">happened</th>
            <th>
              <span class="unseen">difference</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.name}>
              <th scope="row">{row.name}</th>
              <td class="num">{row.plan}</td>
              <td class="num">{row.happened}</td>
              <td class="faint">{row.difference}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Ending({ detail: { end, damaged } }: { detail: RunDetail }) {
  if (!end && damaged === 0) return null;
  const gate = end?.quality_gate as Record<string, unknown> | undefined;
  return (
    <section aria-label="How it ended">
      <PageTitle title="How it ended" />
      <dl class="facts">
        {typeof end?.reason === "string" && <Fact name="reason" value={end.reason} />}
        {typeof end?.error === "string" && (
          <>
            <dt>error</dt>
            <dd class="bad">{end.error}</dd>
          </>
        )}
        {typeof end?.ended_at === "string" && <Fact name="at" value={new Date(end.ended_at).toLocaleString()} />}
        {typeof end?.final_step === "number" && <Fact name="final step" value={count(end.final_step)} />}
        {typeof end?.final_loss === "number" && <Fact name="final loss" value={exact(end.final_loss)} />}
        {typeof end?.exit_code === "number" && <Fact name="exit code" value={String(end.exit_code)} />}
        {gate && (
          <Fact
            name="gate"
            value={`${settingText(gate.metric)} ${settingText(gate.value)} ${gate.passed ? "passed" : "missed"}`}
          />
        )}
        {damaged > 0 && (
          <>
            <dt>damaged</dt>
            <dd class="warn">{plural(damaged, "line")} of the stream could not be read</dd>
          </>
        )}
      </dl>
    </section>
  );
}

const MOST_PACKAGES = 200;

function Provenance({ detail }: { detail: RunDetail }) {
  const { manifest, row, path, family } = detail;
  const provenance = record(manifest.provenance);
  const command = Array.isArray(provenance.command)
    ? provenance.command.map((word) => shellWord(String(word))).join(" ")
    : "";
  const git = record(provenance.git);
  const host = [provenance.host, provenance.os, provenance.arch].filter((word) => typeof word === "string").join(" · ");
  const cpus = typeof provenance.cpus === "number" ? ` · ${plural(provenance.cpus, "core")}` : "";
  const packages = Object.entries(record(provenance.packages));
  return (
    <section aria-label="Provenance">
      <PageTitle title="Where it comes from" />
      {command && <CommandLine text={command} />}
      <dl class="facts provenance">
        <Fact name="folder" value={path} />
        <Fact name="started" value={moment(row.created)} />
        {typeof git.sha === "string" && (
          <Fact
            name="git"
            value={`${git.sha.slice(0, 12)}${typeof git.branch === "string" ? ` on ${git.branch}` : ""}${git.dirty === true ? ", with changes" : ""}`}
          />
        )}
        {host && <Fact name="machine" value={host + cpus} />}
        {typeof provenance.python === "string" && <Fact name="python" value={provenance.python} />}
        {packages.slice(0, MOST_PACKAGES).map(([name, version]) => (
          <Fact key={name} name={name} value={String(version)} />
        ))}
        {family.ancestors.length > 0 && (
          <>
            <dt>came from</dt>
            <dd>
              {family.ancestors.map(({ id, step }) => (
                <div key={id}>
                  <RunLabel id={id} />
                  {step !== null && <span class="faint"> at step {count(step)}</span>}
                </div>
              ))}
            </dd>
          </>
        )}
      </dl>
    </section>
  );
}

function record(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}

/** A word as a POSIX shell needs it. */
export function shellWord(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
