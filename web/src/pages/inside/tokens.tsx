import { useRef, useState } from "preact/hooks";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import type { InsideTokens } from "../../data/types";
import { PictureMenu } from "../../ui/picture-menu";
import { useWidth } from "../../ui/width";
import { asNumber, count, number } from "../../words";
import { LATEST, PageSteps, stepParam } from "../step-param";
import { scaleOf, shareOf } from "./colour-scale";
import { ticksOf } from "./row-curve";

const [LEFT, RIGHT, TOP, HEIGHT, FOOT] = [58, 12, 10, 300, 36];
const NEAR = 14; // pixels to the token that is pointed at

/** How far tokens of the embedding have drifted, by how often the run has trained on them. */
export function TokensView({ id }: { id: string }) {
  const { value: newest, problem } = useLoaded(
    id,
    "tokens",
    (run, signal) => source().insideTokens(run, undefined, signal),
    ["inside"],
  );
  const asked = stepParam.value;
  const near = asked === LATEST ? undefined : newest?.steps.findLast((one) => one <= asked);
  const { value: chosen } = useLoaded(id, `tokens ${near}`, (run, signal) => source().insideTokens(run, near, signal));
  const shown = near === undefined ? newest : chosen;
  if (!newest || !shown) return <p class={problem ? "warn" : "loading"}>{problem ?? "reading tokens …"}</p>;
  return (
    <>
      <div class="toolbar">
        <PageSteps label="tokens" steps={newest.steps} />
      </div>
      <Cloud tokens={shown} />
    </>
  );
}

function Cloud({ tokens }: { tokens: InsideTokens }) {
  const [box, room] = useWidth<HTMLDivElement>(720);
  const [pointed, setPointed] = useState<number | null>(null);
  const picture = useRef<SVGSVGElement>(null);
  const width = Math.min(900, room) - LEFT - RIGHT;
  const cosines = tokens.cos_to_init.map(asNumber);
  const seen = tokens.freq.map((freq) => freq + 1); // a logarithm of those that never came, too
  const across = scaleOf([seen], "log");
  const up = scaleOf([cosines], "linear");
  const xOf = (freq: number) => LEFT + shareOf(across, freq) * width;
  const yOf = (cosine: number) => TOP + (1 - shareOf(up, cosine)) * HEIGHT;
  return (
    <figure class="heat">
      <div class="heat-head">
        <span class="dim">
          {count(tokens.token_id.length)} tokens at step {count(tokens.step)}, those that come most often and some of
          the others
        </span>
        <PictureMenu
          picture={() => picture.current}
          name="tokens"
          table={() => [
            ["token_id", "freq", "cos_to_init", "l2_to_init"],
            ...tokens.token_id.map((token, at) => [
              token,
              tokens.freq[at],
              tokens.cos_to_init[at],
              tokens.l2_to_init[at],
            ]),
          ]}
        />
      </div>
      <div ref={box}>
        <svg
          ref={picture}
          class="row-curve cloud"
          width={LEFT + width + RIGHT}
          height={TOP + HEIGHT + FOOT}
          role="img"
          aria-label={`Cosine of ${tokens.token_id.length} tokens to their first embedding, by how often they came`}
          onMouseMove={(event) => {
            const bounds = event.currentTarget.getBoundingClientRect();
            const [x, y] = [event.clientX - bounds.left, event.clientY - bounds.top];
            const far = tokens.token_id.map((_, at) => Math.hypot(xOf(seen[at] ?? 1) - x, yOf(cosines[at] ?? 0) - y));
            const nearest = far.indexOf(Math.min(...far.filter(Number.isFinite)));
            setPointed((far[nearest] ?? NEAR) < NEAR ? nearest : null);
          }}
          onMouseLeave={() => setPointed(null)}
        >
          {ticksOf(up).map((cosine) => (
            <g key={cosine}>
              <line x1={LEFT} x2={LEFT + width} y1={yOf(cosine)} y2={yOf(cosine)} stroke="var(--line)" />
              <text x={LEFT - 6} y={yOf(cosine)} text-anchor="end" dominant-baseline="central">
                {number(cosine, 3)}
              </text>
            </g>
          ))}
          {ticksOf(across).map((freq) => (
            <text key={freq} x={xOf(freq)} y={TOP + HEIGHT + 15} text-anchor="middle">
              {number(freq, 3)}
            </text>
          ))}
          <text class="axis" x={LEFT + width / 2} y={TOP + HEIGHT + 31} text-anchor="middle">
            how often the run has trained on it
          </text>
          {tokens.token_id.map((token, at) =>
            Number.isNaN(cosines[at] ?? Number.NaN) ? null : (
              <circle
                key={token}
                class={at === pointed ? "on" : ""}
                cx={xOf(seen[at] ?? 1)}
                cy={yOf(cosines[at] ?? 0)}
                r={3.5}
              />
            ),
          )}
        </svg>
      </div>
      <figcaption class="heat-told">
        {pointed === null
          ? "Upwards: the cosine of each token’s embedding to its first value; 1 has not turned."
          : `token ${tokens.token_id[pointed]}: came ${count(tokens.freq[pointed] ?? 0)} times, cosine ${number(tokens.cos_to_init[pointed] ?? null)}, moved by ${number(tokens.l2_to_init[pointed] ?? null)}`}
      </figcaption>
    </figure>
  );
}
