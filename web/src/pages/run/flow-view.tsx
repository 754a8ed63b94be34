import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef } from "preact/hooks";
import { choice, list, number as numberCodec, pageParam, text } from "../../address";
import { useLoaded } from "../../data/loaded";
import { source } from "../../data/state";
import { useCommands } from "../../keys";
import { Button } from "../../ui/button";
import { Empty } from "../../ui/empty";
import { PictureMenu } from "../../ui/picture-menu";
import { Segmented } from "../../ui/segmented";
import { compact, count, plural, size } from "../../words";
import { ENTRY, type Flow, type FlowItem, foldFlow, MOST_BOXES, parseFlow } from "./flow";
import { type Box, countBoxes, type Layout, layOut, wirePath } from "./flow-layout";
import "./flow.css";

const foldingParam = pageParam("fold", choice("stacked", "layers", "operations"), "stacked");
const toggledParam = pageParam("open", list, []);
const boxParam = pageParam("box", text, "");
const zoomParam = pageParam("zoom", numberCodec, 1);
const ZOOMS = [0.4, 0.6, 0.8, 1, 1.25, 1.6, 2];
const MARGIN = 16;

/** The realised model as a graph, folded by layer. */
export function FlowTab({ id }: { id: string }) {
  const { value, problem } = useLoaded(id, "flow", async (run, signal) => parseFlow(await source().flow(run, signal)));
  if (!value) {
    if (problem === null) return <p class="loading">reading the model …</p>;
    return <Empty title={problem} />;
  }
  return <FlowGraphView flow={value} />;
}

/** What is told of a box besides what it is: a line of text, and a colour for its edge. */
export interface FlowNote {
  text: string;
  colour: string;
}

interface FlowGraphViewProps {
  flow: Flow;
  noteOf?: (item: FlowItem) => FlowNote | null;
  /** What stands below the facts of the box that is chosen. */
  detailsOf?: (item: FlowItem) => ComponentChildren;
  /** At the beginning of the toolbar. */
  tools?: ComponentChildren;
}

export function FlowGraphView({ flow, noteOf, detailsOf, tools }: FlowGraphViewProps) {
  const chosenId = boxParam.value;
  const folding = foldingParam.value;
  const toggled = toggledParam.value;
  const wanted = useMemo(() => foldFlow(flow, folding, new Set(toggled)), [flow, folding, toggled.join(",")]);
  const tooMany = countBoxes(wanted) > MOST_BOXES;
  const graph = useMemo(() => (tooMany ? foldFlow(flow, "stacked") : wanted), [wanted, tooMany]);
  const layout = useMemo(() => layOut(graph), [graph]);
  const chosen = useMemo(() => findItem(graph.items, chosenId), [graph, chosenId]);
  const zoom = ZOOMS.includes(zoomParam.value) ? zoomParam.value : 1;
  const resize = (by: number) =>
    zoomParam.replace(ZOOMS[Math.max(0, Math.min(ZOOMS.length - 1, ZOOMS.indexOf(zoom) + by))] ?? 1);
  useCommands([
    { keys: ["+", "="], section: "the model", text: "closer", run: () => resize(1) },
    { keys: ["-"], section: "the model", text: "farther", run: () => resize(-1) },
    { keys: ["0"], section: "the model", text: "as large as it is", run: () => zoomParam.replace(1) },
  ]);
  const canvas = useRef<HTMLElement>(null);
  useEffect(() => {
    const element = canvas.current;
    if (element) element.scrollLeft = (element.scrollWidth - element.clientWidth) / 2;
  }, [layout.width, zoom]);
  const toggle = (item: FlowItem) => {
    toggledParam.value = toggled.includes(item.id) ? toggled.filter((name) => name !== item.id) : [...toggled, item.id];
  };
  return (
    <>
      <div class="toolbar">
        {tools}
        <Segmented
          label="Folded"
          options={["stacked", "layers", "operations"]}
          names={{ stacked: "equal layers as one", layers: "a box a layer", operations: "every operation" }}
          value={folding}
          onChange={(next) => {
            foldingParam.value = next;
            toggledParam.value = [];
          }}
        />
        <div class="zoom">
          <Button label="farther" onClick={() => resize(-1)}>
            −
          </Button>
          <span class="num">{Math.round(zoom * 100)} %</span>
          <Button label="closer" onClick={() => resize(1)}>
            +
          </Button>
        </div>
        <span class="faint">
          {compact(flow.parameters)} parameters, {size(flow.bytes)} · {plural(flow.operations, "operation")}
          {!flow.hasInputs && " · this file names no inputs: operations in the order of the pass"}
        </span>
        <PictureMenu picture={() => canvas.current?.querySelector("svg") ?? null} name="model" />
        {tooMany && (
          <span class="warn">more than {count(MOST_BOXES)} boxes: equal layers stay folded; click one to open it</span>
        )}
      </div>
      <div class="flow">
        {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reached by the keyboard */}
        <section class="flow-canvas" ref={canvas} tabIndex={0} aria-label="The model as a graph">
          <svg
            width={(layout.width + 2 * MARGIN) * zoom}
            height={(layout.height + 2 * MARGIN) * zoom}
            viewBox={`${-MARGIN} ${-MARGIN} ${layout.width + 2 * MARGIN} ${layout.height + 2 * MARGIN}`}
            aria-label={`${graph.items.length} boxes from the input to the loss`}
          >
            <Graph
              layout={layout}
              chosen={chosenId}
              noteOf={noteOf}
              onChoose={(item) => boxParam.replace(item.id)}
              onToggle={toggle}
            />
          </svg>
        </section>
        <Details item={chosen}>{chosen && detailsOf?.(chosen)}</Details>
      </div>
    </>
  );
}

interface GraphProps {
  layout: Layout;
  chosen: string;
  noteOf: ((item: FlowItem) => FlowNote | null) | undefined;
  onChoose(item: FlowItem): void;
  onToggle(item: FlowItem): void;
}

function Graph({ layout, chosen, noteOf, onChoose, onToggle }: GraphProps) {
  return (
    <>
      {layout.wires.map((wire) => (
        <path
          key={`${wire.from}\n${wire.to}`}
          class={`wire${chosen === wire.from || chosen === wire.to ? " on" : ""}`}
          d={wirePath(wire.points)}
        />
      ))}
      {layout.boxes.map((box) => (
        <FlowBox key={box.item.id} box={box} chosen={chosen} noteOf={noteOf} onChoose={onChoose} onToggle={onToggle} />
      ))}
    </>
  );
}

function FlowBox({ box, chosen, noteOf, onChoose, onToggle }: Omit<GraphProps, "layout"> & { box: Box }) {
  const { item, inside } = box;
  if (item.id.startsWith(ENTRY)) {
    return (
      <circle class="port" cx={box.x + box.width / 2} cy={box.y + box.height / 2} r={3}>
        <title>{`from ${item.label}`}</title>
      </circle>
    );
  }
  const isGroup = item.kind === "group";
  const act = () => {
    onChoose(item);
    if (isGroup) onToggle(item);
  };
  const stacked = item.layers > 1 && !inside;
  const note = noteOf?.(item) ?? null;
  return (
    <g
      class={`box ${item.kind}${inside ? " open" : ""}${item.id === chosen ? " on" : ""}`}
      transform={`translate(${box.x} ${box.y})`}
    >
      {stacked && <rect class="under" x={5} y={-5} width={box.width} height={box.height} rx={7} />}
      <rect class="face" width={box.width} height={box.height} rx={7} />
      {note && <rect class="note" x={0.5} y={4} width={5} height={box.height - 8} rx={2.5} fill={note.colour} />}
      <g
        class="handle"
        role="button"
        tabindex={0}
        aria-expanded={isGroup ? inside !== null : undefined}
        onClick={act}
        onKeyDown={(event) => {
          if (event.key !== "Enter" && event.key !== " ") return;
          event.preventDefault();
          act();
        }}
      >
        <rect class="hit" width={box.width} height={inside ? 30 : box.height} rx={7} />
        <text x={12} y={17}>
          {isGroup ? (inside ? "▾ " : "▸ ") : ""}
          {clipped(item.label, isGroup ? 27 : 29)}
        </text>
        {inside ? (
          <text class="sub" x={box.width - 12} y={17} text-anchor="end">
            {note?.text ?? (box.width > 320 ? describe(item) : "")}
          </text>
        ) : (
          <text class="sub" x={12} y={31}>
            {clipped(note?.text ?? describe(item), 34)}
          </text>
        )}
      </g>
      {inside && (
        <g transform={`translate(${(box.width - inside.width) / 2} 34)`}>
          <Graph layout={inside} chosen={chosen} noteOf={noteOf} onChoose={onChoose} onToggle={onToggle} />
        </g>
      )}
    </g>
  );
}

/** The second line of a box. */
function describe(item: FlowItem): string {
  const parameters = item.weights.reduce(
    (total, weight) => total + (weight.role === "weight" ? weight.nelements : 0),
    0,
  );
  const weights = parameters ? `${compact(parameters)} parameters` : "";
  if (item.kind !== "group") return [item.nodes[0]?.shape, weights].filter(Boolean).join(" · ");
  const operations = plural(item.nodes.length / item.layers, "operation");
  return [item.layers > 1 ? `${item.layers} layers` : "", operations, weights].filter(Boolean).join(" · ");
}

function clipped(words: string, most: number): string {
  return words.length > most ? `${words.slice(0, most - 1)}…` : words;
}

function findItem(items: readonly FlowItem[], id: string): FlowItem | null {
  for (const item of items) {
    if (item.id === id) return item;
    const inner = item.inside && findItem(item.inside.items, id);
    if (inner) return inner;
  }
  return null;
}

const MOST_LISTED = 40;

function Details({ item, children }: { item: FlowItem | null; children?: ComponentChildren }) {
  if (!item) {
    return (
      <aside class="flow-details">
        <p class="faint">
          Click a layer to open or fold it, an operation for its shapes. Weights belong to the operations that read
          them.
        </p>
      </aside>
    );
  }
  return (
    <aside class="flow-details" aria-live="polite">
      <h3 class="mono">{item.label}</h3>
      {children}
      {item.kind !== "group" &&
        item.nodes.map((node) => (
          <dl key={node.name} class="facts">
            <dt>operation</dt>
            <dd>{node.op ?? node.role}</dd>
            <dt>shape</dt>
            <dd>{node.shape}</dd>
            <dt>type</dt>
            <dd>{node.dtype}</dd>
            <dt>size</dt>
            <dd>
              {count(node.nelements)} numbers, {size(node.nbytes)}
            </dd>
            {(node.inputs?.length ?? 0) > 0 && (
              <>
                <dt>reads</dt>
                <dd>
                  {node.inputs?.map((name) => (
                    <div key={name}>{name}</div>
                  ))}
                </dd>
              </>
            )}
          </dl>
        ))}
      {item.kind === "group" && (
        <p class="dim">
          {describe(item)}; {size(item.nodes.reduce((total, node) => total + node.nbytes, 0))} of results in one pass
        </p>
      )}
      {item.weights.length > 0 && (
        <>
          <h4>parameters</h4>
          <ul>
            {item.weights.slice(0, MOST_LISTED).map((weight) => (
              <li key={weight.name}>
                <span class="mono">{weight.name}</span>
                <span class="faint">
                  {weight.shape} {weight.dtype}, {size(weight.nbytes)}
                </span>
              </li>
            ))}
            {item.weights.length > MOST_LISTED && <li class="faint">and {item.weights.length - MOST_LISTED} more</li>}
          </ul>
        </>
      )}
    </aside>
  );
}
