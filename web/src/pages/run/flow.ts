// `flow.json` as a graph: operations by layer, layers folded to one box or open, equal layers stacked.

export interface FlowNode {
  name: string;
  role: "weight" | "input" | "constant" | "output" | "loss" | "ephemeral";
  shape: string;
  dtype: string;
  nelements: number;
  nbytes: number;
  op?: string;
  inputs?: string[];
}

/** How much is folded: equal layers as one box, each layer as a box, or every operation. */
export type Folding = "stacked" | "layers" | "operations";

/** A box of the graph: an operation or an input by itself, or a group of operations, folded or open. */
export interface FlowItem {
  id: string;
  label: string;
  kind: FlowNode["role"] | "group";
  nodes: FlowNode[]; // the operations it stands for, in the order of the pass
  weights: FlowNode[]; // parameters that they read
  layers: number; // equal layers that it stands for
  inside: FlowGraph | null; // an open group's own graph
}

export interface FlowEdge {
  from: string;
  to: string;
}

export interface FlowGraph {
  items: FlowItem[];
  edges: FlowEdge[];
}

/** What a flow holds besides its picture. */
export interface Flow {
  nodes: FlowNode[];
  parameters: number;
  bytes: number; // of the parameters
  operations: number;
  hasInputs: boolean; // false: the file names no inputs, so operations are drawn one after the other
}

export const MOST_BOXES = 1500;
const LOSS_GROUP = "loss";
/** What stands for everything outside an open group that it reads. */
export const ENTRY = "\u0000in ";

/** Reads `flow.json`; null when it is none. Unknown keys are passed over, damaged nodes are left out. */
export function parseFlow(content: unknown): Flow | null {
  if (typeof content !== "object" || content === null || !("nodes" in content) || !Array.isArray(content.nodes))
    return null;
  const nodes: FlowNode[] = [];
  const names = new Set<string>();
  for (const entry of content.nodes as unknown[]) {
    const node = readNode(entry);
    if (node && !names.has(node.name)) {
      names.add(node.name);
      nodes.push(node);
    }
  }
  const weights = nodes.filter((node) => node.role === "weight");
  const operations = nodes.filter((node) => node.op !== undefined);
  return {
    nodes,
    parameters: sum(weights.map((node) => node.nelements)),
    bytes: sum(weights.map((node) => node.nbytes)),
    operations: operations.length,
    hasInputs: operations.some((node) => (node.inputs?.length ?? 0) > 0),
  };
}

function readNode(entry: unknown): FlowNode | null {
  if (typeof entry !== "object" || entry === null) return null;
  const fields = entry as Record<string, unknown>;
  if (typeof fields.name !== "string" || fields.name === "") return null;
  const roles = ["weight", "input", "constant", "output", "loss"] as const;
  const text = (value: unknown) => (typeof value === "string" ? value : "");
  const count = (value: unknown) => (typeof value === "number" && Number.isFinite(value) ? value : 0);
  return {
    name: fields.name,
    role: roles.find((role) => role === fields.role) ?? "ephemeral",
    shape: text(fields.shape),
    dtype: text(fields.dtype),
    nelements: count(fields.nelements),
    nbytes: count(fields.nbytes),
    ...(typeof fields.op === "string" ? { op: fields.op } : {}),
    ...(Array.isArray(fields.inputs) ? { inputs: fields.inputs.filter((name) => typeof name === "string") } : {}),
  };
}

/** The layer or module an operation is folded into; "" for one that stands by itself: `blocks.0.attn_qkv.linear` → `blocks.0`. */
export function layerOf(name: string): string {
  const parts = name.replace(/#\d+$/, "").split(".").slice(0, -1);
  const numbered = parts.findIndex((part) => /^\d+$/.test(part));
  return numbered >= 0 ? parts.slice(0, numbered + 1).join(".") : (parts[0] ?? "");
}

type NonEmpty<T> = [T, ...T[]];

interface Group {
  id: string;
  nodes: NonEmpty<FlowNode>;
}

/**
 * The graph to draw. Weights and tables are no boxes: they belong to the operations that read them.
 * `toggled`: groups that are open although `folding` folds them, and the other way round; one ends the stack it was in.
 */
export function foldFlow(flow: Flow, folding: Folding, toggled: ReadonlySet<string> = new Set()): FlowGraph {
  const operations = flow.nodes.filter((node) => node.op !== undefined || node.role === "input");
  const byName = new Map(flow.nodes.map((node) => [node.name, node]));
  const inputsOf = inputLists(flow, operations);
  const groups = groupsOf(operations);
  const items: FlowItem[] = [];
  const itemOf = new Map<string, string>();
  for (const members of stacksOf(groups, inputsOf, folding, toggled)) {
    const [group] = members;
    const [first] = group.nodes;
    const { id } = group;
    const nodes = members.flatMap((member) => member.nodes);
    const isGroup = group.nodes.length > 1;
    const isOpen = isGroup && (folding === "operations") !== toggled.has(id);
    items.push({
      id,
      label: members.length > 1 ? `${id} … ${members.at(-1)?.id}` : isGroup ? id : shortName(first),
      kind: isGroup ? "group" : first.role,
      nodes,
      weights: weightsOf(nodes, inputsOf, byName),
      layers: members.length,
      inside: isOpen ? insideOf(group, inputsOf, byName) : null,
    });
    for (const node of nodes) itemOf.set(node.name, id);
  }
  return { items, edges: edgesBetween(operations, inputsOf, itemOf) };
}

/** Groups that are drawn as one box: equal layers that follow each other, where these are stacked. */
function stacksOf(
  groups: readonly Group[],
  inputsOf: Map<string, string[]>,
  folding: Folding,
  toggled: ReadonlySet<string>,
): NonEmpty<Group>[] {
  const stacks: NonEmpty<Group>[] = [];
  let shapeBefore = "";
  for (const group of groups) {
    const joins = folding === "stacked" && group.nodes.length > 1 && !toggled.has(group.id);
    const shape = joins ? signature(group, inputsOf) : "";
    if (shape && shape === shapeBefore) stacks.at(-1)?.push(group);
    else stacks.push([group]);
    shapeBefore = shape;
  }
  return stacks;
}

function groupsOf(operations: FlowNode[]): Group[] {
  const lastLayered = operations.findLastIndex((node) => layerOf(node.name) !== "");
  const groups = new Map<string, Group>();
  operations.forEach((node, index) => {
    const layer = node.role === "input" ? "" : layerOf(node.name);
    const isLoss = layer === "" && index > lastLayered && node.role !== "input";
    const id = isLoss ? LOSS_GROUP : layer || node.name;
    const group = groups.get(id);
    if (group) group.nodes.push(node);
    else groups.set(id, { id, nodes: [node] });
  });
  return [...groups.values()];
}

/** Inputs by operation; where the file names none, each reads the one before. */
function inputLists(flow: Flow, operations: FlowNode[]): Map<string, string[]> {
  const lists = new Map<string, string[]>();
  let before: string | null = null;
  for (const node of operations) {
    if (flow.hasInputs) lists.set(node.name, node.inputs ?? []);
    else lists.set(node.name, before === null ? [] : [before]);
    before = node.name;
  }
  return lists;
}

/** Equal for layers that do the same with tensors of the same shape. */
function signature(group: Group, inputsOf: Map<string, string[]>): string {
  const order = new Map(group.nodes.map((node, index) => [node.name, index]));
  const lines = group.nodes.map((node) => {
    const inputs = (inputsOf.get(node.name) ?? []).map((name) => order.get(name) ?? "outside");
    return [node.op, node.shape, node.dtype, inputs.join(",")].join(" ");
  });
  const prefix = group.id.replace(/\d+$/, "");
  return `${prefix === group.id ? group.id : prefix}\n${lines.join("\n")}`;
}

function insideOf(group: Group, inputsOf: Map<string, string[]>, byName: Map<string, FlowNode>): FlowGraph {
  const own = new Set(group.nodes.map((node) => node.name));
  const items: FlowItem[] = group.nodes.map((node) => ({
    id: node.name,
    label: shortName(node, group.id),
    kind: node.role,
    nodes: [node],
    weights: weightsOf([node], inputsOf, byName),
    layers: 1,
    inside: null,
  }));
  const edges: FlowEdge[] = [];
  const entries = new Set<string>();
  for (const node of group.nodes) {
    for (const input of new Set(inputsOf.get(node.name) ?? [])) {
      const source = byName.get(input);
      if (!source || source.role === "weight" || source.role === "constant") continue;
      if (own.has(input)) edges.push({ from: input, to: node.name });
      else {
        entries.add(input);
        edges.push({ from: ENTRY + input, to: node.name });
      }
    }
  }
  const ports = [...entries].map<FlowItem>((name) => ({
    id: ENTRY + name,
    label: name,
    kind: "input",
    nodes: [],
    weights: [],
    layers: 1,
    inside: null,
  }));
  return { items: [...ports, ...items], edges };
}

function edgesBetween(
  operations: FlowNode[],
  inputsOf: Map<string, string[]>,
  itemOf: Map<string, string>,
): FlowEdge[] {
  const edges = new Map<string, FlowEdge>();
  for (const node of operations) {
    const to = itemOf.get(node.name);
    for (const input of inputsOf.get(node.name) ?? []) {
      const from = itemOf.get(input);
      if (from !== undefined && to !== undefined && from !== to) edges.set(`${from}\n${to}`, { from, to });
    }
  }
  return [...edges.values()];
}

function weightsOf(nodes: FlowNode[], inputsOf: Map<string, string[]>, byName: Map<string, FlowNode>): FlowNode[] {
  const names = new Set(nodes.flatMap((node) => inputsOf.get(node.name) ?? []));
  const read = [...names].map((name) => byName.get(name));
  return read.filter((node): node is FlowNode => node?.role === "weight" || node?.role === "constant");
}

/** An operation without the layer it stands in: `attn_qkv.linear`. */
function shortName(node: FlowNode, layer = ""): string {
  return layer && node.name.startsWith(`${layer}.`) ? node.name.slice(layer.length + 1) : node.name;
}

function sum(values: number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
