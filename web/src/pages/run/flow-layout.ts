// Where the boxes of a flow stand: ranks from top to bottom, long edges in lanes of their own, few crossings.
import { ENTRY, type FlowGraph, type FlowItem } from "./flow";

export interface Box {
  item: FlowItem;
  x: number; // the left edge
  y: number;
  width: number;
  height: number;
  inside: Layout | null;
}
export interface Wire {
  from: string;
  to: string;
  points: [number, number][];
}
export interface Layout {
  width: number;
  height: number;
  boxes: Box[];
  wires: Wire[];
}

const BOX_WIDTH = 208;
const BOX_HEIGHT = 40;
const PORT = 8;
const GAP_X = 20;
const GAP_Y = 26;
const LANE = 14; // the width of an edge that passes a rank
const FRAME_TOP = 34;
const FRAME_SIDE = 14;
const SWEEPS = 6;

interface Cell {
  id: string;
  item: FlowItem | null; // null: an edge that passes this rank
  inside: Layout | null;
  width: number;
  height: number;
  rank: number;
  x: number; // its middle
  above: Cell[];
  below: Cell[];
}

/** Lays a graph out; an open group is laid out by itself first and is then one large box. */
export function layOut(graph: FlowGraph): Layout {
  const cells = new Map<string, Cell>();
  for (const item of graph.items) cells.set(item.id, cellOf(item));
  const order = rankCells(graph, cells);
  const chains = joinCells(graph, cells);
  const ranks = ranksOf([...order, ...chains.flatMap((chain) => chain.slice(1, -1))]);
  sortRanks(ranks);
  const width = placeCells(ranks);
  const { tops, height } = rankTops(ranks);
  const boxes = order.flatMap((cell) => boxOf(cell, tops));
  const wires = chains.map((chain) => wireOf(chain, tops));
  return { width, height, boxes, wires };
}

function cellOf(item: FlowItem): Cell {
  const inside = item.inside ? layOut(item.inside) : null;
  const isPort = item.id.startsWith(ENTRY);
  const width = inside ? Math.max(BOX_WIDTH, inside.width + 2 * FRAME_SIDE) : isPort ? PORT : BOX_WIDTH;
  const height = inside ? inside.height + FRAME_TOP + FRAME_SIDE : isPort ? PORT : BOX_HEIGHT;
  return { id: item.id, item, inside, width, height, rank: 0, x: 0, above: [], below: [] };
}

/** Each below all that it reads, and an input close to the first that reads it. The nodes come in the order of the pass. */
function rankCells(graph: FlowGraph, cells: Map<string, Cell>): Cell[] {
  const sources = new Map<string, string[]>();
  for (const { from, to } of graph.edges) sources.set(to, [...(sources.get(to) ?? []), from]);
  const order = [...cells.values()];
  for (let round = 0; round < order.length; round++) {
    let changed = false;
    for (const cell of order) {
      const rank = Math.max(0, ...(sources.get(cell.id) ?? []).map((id) => (cells.get(id)?.rank ?? -1) + 1));
      if (rank > cell.rank && rank <= order.length) {
        cell.rank = rank;
        changed = true;
      }
    }
    if (!changed) break;
  }
  const readers = new Map<string, number>();
  for (const { from, to } of graph.edges)
    readers.set(from, Math.min(readers.get(from) ?? Infinity, cells.get(to)?.rank ?? Infinity));
  for (const cell of order) {
    const reader = readers.get(cell.id);
    const isSource = (sources.get(cell.id) ?? []).length === 0 && !cell.id.startsWith(ENTRY);
    if (isSource && reader !== undefined && Number.isFinite(reader)) cell.rank = Math.max(cell.rank, reader - 1);
  }
  return order;
}

/** The cells that each edge leads through: both ends, and one in every rank between. */
function joinCells(graph: FlowGraph, cells: Map<string, Cell>): Cell[][] {
  const chains: Cell[][] = [];
  for (const { from, to } of graph.edges) {
    const first = cells.get(from);
    const last = cells.get(to);
    if (!first || !last || first.rank >= last.rank) continue;
    const chain = [first];
    for (let rank = first.rank + 1; rank < last.rank; rank++)
      chain.push({
        id: `${from}\n${to}\n${rank}`,
        item: null,
        inside: null,
        width: LANE,
        height: 0,
        rank,
        x: 0,
        above: [],
        below: [],
      });
    chain.push(last);
    let before = first;
    for (const cell of chain.slice(1)) {
      before.below.push(cell);
      cell.above.push(before);
      before = cell;
    }
    chains.push(chain);
  }
  return chains;
}

function ranksOf(cells: Cell[]): Cell[][] {
  const deepest = cells.reduce((rank, cell) => Math.max(rank, cell.rank), -1);
  const ranks = Array.from({ length: deepest + 1 }, (): Cell[] => []);
  for (const cell of cells) ranks[cell.rank]?.push(cell);
  return ranks;
}

/** Order within ranks by the mean position of neighbours, down and up again. */
function sortRanks(ranks: Cell[][]): void {
  const positions = new Map<Cell, number>();
  const positionOf = (cell: Cell) => positions.get(cell) ?? 0;
  const note = (rank: Cell[]) => {
    for (const [index, cell] of rank.entries()) positions.set(cell, index);
  };
  for (const rank of ranks) note(rank);
  const sortBy = (rank: Cell[], neighbours: (cell: Cell) => Cell[]) => {
    const weighed = rank.map((cell) => ({ cell, weight: mean(neighbours(cell).map(positionOf)) ?? positionOf(cell) }));
    weighed.sort((a, b) => a.weight - b.weight);
    rank.splice(0, rank.length, ...weighed.map(({ cell }) => cell));
    note(rank);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    for (const rank of ranks) sortBy(rank, (cell) => cell.above);
    for (const rank of [...ranks].reverse()) sortBy(rank, (cell) => cell.below);
  }
}

/** Puts each cell near the middle of its neighbours, without overlaps; the whole width. */
function placeCells(ranks: Cell[][]): number {
  for (const rank of ranks)
    spread(
      rank,
      rank.map((_, index) => index * (BOX_WIDTH + GAP_X)),
    );
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    for (const rank of down ? ranks : [...ranks].reverse()) {
      const wanted = rank.map((cell) => mean((down ? cell.above : cell.below).map((near) => near.x)) ?? cell.x);
      spread(rank, wanted);
    }
  }
  const cells = ranks.flat();
  const left = Math.min(...cells.map((cell) => cell.x - cell.width / 2));
  const right = Math.max(...cells.map((cell) => cell.x + cell.width / 2));
  for (const cell of cells) cell.x -= left;
  return Number.isFinite(right - left) ? right - left : 0;
}

/** Neighbours that touch. `want`: where the middle of the first would be; `width`: from there to that of the last. */
interface Block {
  cells: { cell: Cell; offset: number }[];
  want: number;
  first: Cell;
  last: Cell;
  width: number;
}

/** As near to what each wants as their order and widths allow: overlapping neighbours become a block around their mean. */
function spread(rank: Cell[], wanted: number[]): void {
  const blocks: Block[] = [];
  rank.forEach((cell, index) => {
    let block: Block = { cells: [{ cell, offset: 0 }], want: wanted[index] ?? 0, first: cell, last: cell, width: 0 };
    for (let before = blocks.at(-1); before; before = blocks.at(-1)) {
      const shift = before.width + (before.last.width + block.first.width) / 2 + GAP_X;
      if (before.want + shift <= block.want) break;
      const [n, m] = [before.cells.length, block.cells.length];
      block = {
        cells: [...before.cells, ...block.cells.map((moved) => ({ ...moved, offset: moved.offset + shift }))],
        want: (before.want * n + (block.want - shift) * m) / (n + m),
        first: before.first,
        last: block.last,
        width: shift + block.width,
      };
      blocks.pop();
    }
    blocks.push(block);
  });
  for (const { cells, want } of blocks) for (const { cell, offset } of cells) cell.x = want + offset;
}

function rankTops(ranks: Cell[][]): { tops: number[]; height: number } {
  let y = 0;
  const tops = ranks.map((rank) => {
    const top = y;
    y += Math.max(0, ...rank.map((cell) => cell.height)) + GAP_Y;
    return top;
  });
  tops.push(y); // below the last
  return { tops, height: Math.max(0, y - GAP_Y) };
}

function boxOf({ item, inside, width, height, x, rank }: Cell, tops: number[]): Box[] {
  return item ? [{ item, x: x - width / 2, y: tops[rank] ?? 0, width, height, inside }] : [];
}

function wireOf(chain: Cell[], tops: number[]): Wire {
  const points: [number, number][] = [];
  chain.forEach((cell, index) => {
    const top = tops[cell.rank] ?? 0;
    if (index === 0) points.push([cell.x, top + cell.height]);
    else if (index === chain.length - 1) points.push([cell.x, top]);
    else points.push([cell.x, top], [cell.x, (tops[cell.rank + 1] ?? 0) - GAP_Y]);
  });
  return { from: chain[0]?.id ?? "", to: chain.at(-1)?.id ?? "", points };
}

/** An edge as a path: straight down within a rank, an S between two. */
export function wirePath(points: [number, number][]): string {
  let path = "";
  points.forEach(([x, y], index) => {
    const before = points[index - 1];
    if (!before) path += `M${x} ${y}`;
    else if (before[0] === x) path += `V${y}`;
    else path += `C${before[0]} ${(before[1] + y) / 2} ${x} ${(before[1] + y) / 2} ${x} ${y}`;
  });
  return path;
}

/** Boxes that are drawn, those inside open groups counted. */
export function countBoxes(graph: FlowGraph): number {
  return graph.items.reduce((count, item) => count + 1 + (item.inside ? countBoxes(item.inside) : 0), 0);
}

function mean(values: number[]): number | null {
  return values.length ? values.reduce((total, value) => total + value, 0) / values.length : null;
}
