import { useMemo } from "preact/hooks";
import { link, list, pageParam } from "../../address";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import type { InsideInfo, Region } from "../../data/types";
import { count, number } from "../../words";
import { LATEST, PageSteps, stepParam } from "../step-param";

const openParam = pageParam("open", list, []);
const OPEN_TO = 1; // regions down to this depth are open unless somebody closes them

export interface RegionRow {
  key: string;
  region: Region;
  depth: number;
  isOpen: boolean;
}

/** Where the time of a step went: regions within each other, as bars from where they began. */
export function TimeView({ id, info }: { id: string; info: InsideInfo }) {
  const asked = stepParam.value;
  const step = asked === LATEST ? undefined : asked;
  const { value: all } = useLoaded(id, "regions", (run, signal) => source().insideRegions(run, undefined, signal), [
    "inside",
  ]);
  const near = all && step !== undefined ? (all.steps.findLast((one) => one <= step) ?? all.steps[0]) : undefined;
  const { value: chosen, problem } = useLoaded(id, `regions ${near ?? ""}`, (run, signal) =>
    source().insideRegions(run, near, signal),
  );
  const shown = near === undefined ? all : chosen;
  const open = openParam.value;
  const rows = useMemo(() => (shown ? regionRows(shown.root, new Set(open)) : []), [shown, open.join(",")]);
  if (!info.looks.regions) return <p class="dim">No times were told: they come with --inspect regions.</p>;
  if (!shown || !all) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading times …"}</p>;
  const whole = shown.root.us || 1;
  const toggle = (key: string) => {
    openParam.replace(open.includes(key) ? open.filter((one) => one !== key) : [...open, key]);
  };
  return (
    <>
      <div class="toolbar">
        <PageSteps label="times" steps={all.steps} />
        <span>
          {number(whole / 1000)} ms <span class="faint">the step</span>
        </span>
        {info.looks.ops && (
          <a class="inside-link" href={link(`/run/${encodeURIComponent(id)}/profile`)}>
            the same by operation
          </a>
        )}
      </div>
      <table class="regions">
        <thead>
          <tr>
            <th scope="col">part of the step</th>
            <th scope="col" class="num">
              ms
            </th>
            <th scope="col" class="num">
              of the step
            </th>
            <th scope="col" class="num own">
              by itself, ms
            </th>
            <th scope="col">
              <span class="unseen">when it ran</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, region, depth, isOpen }) => (
            <tr key={key}>
              <th scope="row" class="mono clip" title={region.path} style={{ paddingLeft: `${4 + 14 * depth}px` }}>
                {region.children.length ? (
                  <button type="button" aria-expanded={isOpen} onClick={() => toggle(key)}>
                    <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> {region.name || "step"}
                  </button>
                ) : (
                  <span class="leaf">{region.name}</span>
                )}
              </th>
              <td class="num">{number(region.us / 1000, 3)}</td>
              <td class="num">{((100 * region.us) / whole).toFixed(1)} %</td>
              <td class="num own">{region.children.length ? number(region.own_us / 1000, 3) : ""}</td>
              <td aria-hidden="true">
                <span
                  class={`region-bar depth-${Math.min(depth, 3)}`}
                  style={{
                    marginLeft: `${(100 * (region.begin_us - shown.root.begin_us)) / whole}%`,
                    width: `${(100 * region.us) / whole}%`,
                  }}
                />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <p class="faint">
        On the device’s own clock, of step {count(shown.step)}, from its beginning on the left to its end on the right.
      </p>
    </>
  );
}

/** The regions that are seen, from top to bottom. `toggled`: closed although they are open by themselves, or the other way round. */
export function regionRows(root: Region, toggled: ReadonlySet<string>): RegionRow[] {
  const rows: RegionRow[] = [];
  const add = (region: Region, key: string, depth: number) => {
    const isOpen = region.children.length > 0 && depth <= OPEN_TO !== toggled.has(key);
    rows.push({ key, region, depth, isOpen });
    if (!isOpen) return;
    const seen = new Map<string, number>();
    for (const child of region.children) {
      const nth = seen.get(child.path) ?? 0; // a part may run twice
      seen.set(child.path, nth + 1);
      add(child, nth ? `${child.path}#${nth}` : child.path, depth + 1);
    }
  };
  add(root, root.path, 0);
  return rows;
}
