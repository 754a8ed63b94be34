import { useMemo } from "preact/hooks";
import { flag, link, pageParam, text } from "../../address";
import { nameOf } from "../../data/state";
import { DataTable } from "../../ui/data-table";
import { RunLabel } from "../../ui/run-label";
import { Toggle } from "../../ui/segmented";
import { plural } from "../../words";
import { PageTitle } from "../page-title";
import { equalSettings, settingText, shortSetting } from "../run/settings";
import type { Comparison } from "./comparison";
import "../../ui/beside.css";

const equalParam = pageParam("equal", flag, false);
const wordsParam = pageParam("words", text, "");
const MOST_BESIDE = 8; // runs that are columns; of more, each is a row

/** Settings in which runs differ, the equal ones on demand. */
export function SettingsTable({ comparison }: { comparison: Comparison }) {
  const { runs, differing, equal } = comparison;
  const words = wordsParam.value.toLowerCase().split(/\s+/).filter(Boolean);
  const names = [...differing, ...(equalParam.value ? equal : [])].filter((name) =>
    words.every((word) => name.toLowerCase().includes(word)),
  );
  const key = names.join("\n");
  const columns = useMemo(
    () => [
      { name: "run" },
      ...names.map((name) => ({
        name,
        numeric: runs.every((run) => typeof run.settings[name] !== "string"),
        format: shortSetting,
      })),
    ],
    [key, runs],
  );
  const rows = useMemo(
    () => runs.map((run) => [nameOf(run.id), ...names.map((name) => cellOf(run.settings[name]))]),
    [key, runs],
  );
  return (
    <section aria-label="Settings">
      <PageTitle
        title="Settings"
        note={
          runs.length < 2
            ? undefined
            : differing.length
              ? `${differing.length} differ, ${equal.length} are equal`
              : "all are equal"
        }
      >
        <input
          class="search"
          type="search"
          placeholder="filter"
          aria-label="Filter settings"
          value={wordsParam.value}
          onInput={(event) => wordsParam.replace(event.currentTarget.value)}
        />
        <Toggle
          label="equal ones too"
          on={equalParam.value}
          onChange={(on) => {
            equalParam.value = on;
          }}
        />
      </PageTitle>
      {names.length === 0 ? (
        <p class="faint">{words.length ? "No setting has these words." : "These runs were set alike."}</p>
      ) : runs.length <= MOST_BESIDE ? (
        <BesideTable comparison={comparison} names={names} />
      ) : (
        <DataTable label="Settings by run" sortParam="settings" columns={columns} rows={rows} height={14} />
      )}
      {runs.length > MOST_BESIDE && <p class="faint">{plural(runs.length, "run")}, a row each.</p>}
    </section>
  );
}

function cellOf(value: unknown): string | number | null {
  if (value === undefined || value === null) return null;
  return typeof value === "number" ? value : settingText(value);
}

function BesideTable({ comparison: { runs, differing }, names }: { comparison: Comparison; names: readonly string[] }) {
  const isDiffering = new Set(differing);
  const first = runs[0]?.settings ?? {};
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard
    <section class="beside" tabIndex={0} aria-label="Settings of each run">
      <table>
        <thead>
          <tr>
            <td />
            {runs.map(({ id }) => (
              <th key={id} scope="col">
                <a href={link(`/run/${encodeURIComponent(id)}/config`)}>
                  <RunLabel id={id} />
                </a>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {names.map((name) => (
            <tr key={name} class={isDiffering.has(name) ? "" : "equal"}>
              <th scope="row">{name}</th>
              {runs.map(({ id, settings }, index) => (
                <td
                  key={id}
                  class={index > 0 && !equalSettings(settings[name], first[name]) ? "other" : ""}
                  title={settingText(settings[name])}
                >
                  {shortSetting(settings[name])}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
