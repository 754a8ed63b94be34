/**
 * `LineLayer`: the lines of a chart on a bitmap of their own, so that panning and zooming move a picture.
 *
 * A frame draws the bitmap where the axes say that it lies now, stretched if need be. What it does not show rightly any
 * more is painted anew beside it, a few traces a frame while somebody drags, and at once otherwise.
 */
import { Mapping } from "./geometry";
import { paintTrace, type StyledTrace } from "./paint";
import { backward, forward, type Scale } from "./scale";
import type { Trace } from "./trace";

/** Traces that count from one x to another; null: everywhere that no later part covers. */
export interface LayerPart {
  readonly traces: readonly StyledTrace[];
  readonly from: number | null;
  readonly to: number | null;
}

interface Strip {
  readonly from: number;
  readonly to: number;
}

interface Bitmap {
  readonly canvas: HTMLCanvasElement;
  readonly context: CanvasRenderingContext2D;
  x: Scale;
  y: Scale;
  mapping: Mapping;
  version: number;
  /** What is to be painted, in pixels from its left edge. */
  readonly missing: readonly Strip[];
  /** The next strip, part and trace to paint. */
  strip: number;
  part: number;
  trace: number;
  done: boolean;
}

const MARGIN = 0.5; // of the width, painted ahead on either side
const STRETCHED = 12; // how many times larger a bitmap is drawn at most, until it is painted anew
const SLACK = 0.2; // of the width: with less to come on a side, a pan paints ahead
const BLEED = 4; // pixels beyond a strip from which lines come in
const CLOSE = 0.25; // pixels that a bitmap may be off

export class LineLayer {
  #front: Bitmap | null = null;
  #back: Bitmap | null = null;
  #spare: HTMLCanvasElement | null = null;
  #parts: readonly LayerPart[] = [];
  #version = 0;
  #grown = false;
  #painted = new Map<Trace, { rows: number; version: number }>(); // each trace when it was painted

  /** What is to be drawn; also to be called when traces have grown: then only their new end is painted. */
  setParts(parts: readonly LayerPart[]): void {
    if (sameLines(this.#parts, parts)) this.#grown = true;
    else this.#version++;
    this.#parts = parts;
  }

  /** Everything is to be painted anew. */
  invalidate(): void {
    this.#version++;
  }

  /** Is there anything that `draw` shows? */
  get isPainted(): boolean {
    return this.#front !== null;
  }

  /** Is what `draw` shows at this place sharp, whole and of now? */
  isFresh(mapping: Mapping): boolean {
    const front = this.#front;
    return !this.#grown && front !== null && this.#isRight(front, mapping);
  }

  #isRight(bitmap: Bitmap, mapping: Mapping): boolean {
    return bitmap.version === this.#version && covers(bitmap, mapping) && isSharp(bitmap, mapping);
  }

  /**
   * Paints what is missing. `deadline`: a time of `performance.now()`; false when there was no time for all of it.
   * `ahead`: also what lies beside the chart, for a pan.
   */
  paint(mapping: Mapping, ratio: number, deadline: number, ahead: boolean): boolean {
    if (this.#grown && this.#front && this.#isRight(this.#front, mapping)) this.#paintEnd(this.#front, ratio);
    if (this.isFresh(mapping) && (!ahead || (this.#front && hasSlack(this.#front, mapping)))) return true;
    let back = this.#back;
    if (!back || this.#grown || !this.#isRight(back, mapping)) {
      back = this.#begin(mapping, ahead);
      if (!back) return true;
      this.#grown = false;
      this.#painted = new Map(this.#traces().map((trace) => [trace, { rows: trace.length, version: trace.version }]));
    }
    this.#back = back;
    this.#go(back, ratio, deadline);
    if (!back.done) return false;
    this.#spare = this.#front?.canvas ?? this.#spare;
    this.#front = back;
    this.#back = null;
    return true;
  }

  draw(context: CanvasRenderingContext2D, mapping: Mapping): void {
    const front = this.#front;
    if (!front || front.x.log !== mapping.x.log || front.y.log !== mapping.y.log) return;
    const { box } = mapping;
    const left = mapping.toX(front.x.min);
    const width = mapping.toX(front.x.max) - left;
    const top = mapping.toY(front.y.max);
    const height = mapping.toY(front.y.min) - top;
    const { canvas } = front;
    if (width > canvas.width * STRETCHED || height > canvas.height * STRETCHED) return;
    const sharp = isSharp(front, mapping);
    context.save();
    context.beginPath();
    context.rect(box.left, box.top, box.width, box.height);
    context.clip();
    context.imageSmoothingEnabled = !sharp;
    if (sharp) context.drawImage(canvas, Math.round(left), Math.round(top));
    else context.drawImage(canvas, left, top, width, height);
    context.restore();
  }

  /** Lets the bitmaps go: the chart is not on the screen. */
  release(): void {
    this.#front = null;
    this.#back = null;
    this.#spare = null;
  }

  #begin(mapping: Mapping, ahead: boolean): Bitmap | null {
    const { x, y, box } = mapping;
    const margin = ahead ? Math.round(box.width * MARGIN) : 0;
    const canvas = this.#back?.canvas ?? this.#spare ?? document.createElement("canvas");
    this.#spare = null;
    const width = box.width + 2 * margin;
    if (canvas.width !== width) canvas.width = width;
    if (canvas.height !== box.height) canvas.height = box.height;
    const context = canvas.getContext("2d");
    if (!context) return null;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, width, box.height);
    const low = forward(x.min, x.log);
    const across = forward(x.max, x.log) - low;
    let wider: Scale = {
      ...x,
      min: backward(low - (across * margin) / box.width, x.log),
      max: backward(low + across * (1 + margin / box.width), x.log),
    };
    const shift = this.#shiftFrom(wider, mapping, width);
    const front = this.#front;
    if (shift !== null && front) {
      // By whole pixels, so that what is painted already can be moved.
      wider = { ...x, min: front.mapping.fromX(shift), max: front.mapping.fromX(shift + width) };
      context.drawImage(front.canvas, -shift, 0);
    }
    const own = new Mapping(wider, y, { left: 0, top: 0, width, height: box.height });
    const missing =
      shift === null || !front
        ? [{ from: 0, to: width }]
        : [
            { from: 0, to: -shift },
            { from: front.canvas.width - shift, to: width },
          ].filter(({ from, to }) => to > from);
    const fresh = { version: this.#version, missing, strip: 0, part: 0, trace: 0, done: false };
    return { canvas, context, x: wider, y, mapping: own, ...fresh };
  }

  /** How many pixels a new bitmap lies to the right of the front one; null where that is of no use for it. */
  #shiftFrom(wider: Scale, mapping: Mapping, width: number): number | null {
    const front = this.#front;
    if (!front || this.#grown || front.version !== this.#version || !isSharp(front, mapping)) return null;
    const level = front.y.min === mapping.y.min && front.y.max === mapping.y.max;
    const shift = Math.round(front.mapping.toX(wider.min));
    return level && Math.abs(shift) < Math.max(width, front.canvas.width) ? shift : null;
  }

  #traces(): Trace[] {
    return this.#parts.flatMap((part) => part.traces.map(({ trace }) => trace));
  }

  /** Rows were added: the strip of the bitmap from the first of them on is painted anew. */
  #paintEnd({ context, mapping }: Bitmap, ratio: number): void {
    this.#grown = false;
    let from = Number.POSITIVE_INFINITY;
    for (const trace of this.#traces()) {
      const known = this.#painted.get(trace) ?? { rows: 0, version: -1 };
      if (known.version !== trace.version) from = Math.min(from, trace.x[Math.max(0, known.rows - 2)] ?? from);
      this.#painted.set(trace, { rows: trace.length, version: trace.version });
    }
    const { width, height } = mapping.box;
    const left = Math.max(0, Math.floor(mapping.toX(from)) - 2);
    if (!(left < width)) return;
    context.save();
    context.beginPath();
    context.rect(left, 0, width - left, height);
    context.clip();
    context.clearRect(left, 0, width - left, height);
    this.#parts.forEach((part, index) => {
      context.save();
      this.#clip(context, mapping, index);
      for (const styled of part.traces) paintTrace(context, styled, mapping, ratio, part.traces.length, from);
      context.restore();
    });
    context.restore();
  }

  #go(bitmap: Bitmap, ratio: number, deadline: number): void {
    for (; bitmap.strip < bitmap.missing.length; bitmap.strip++, bitmap.part = 0) {
      const strip = bitmap.missing[bitmap.strip];
      if (strip && !this.#paintStrip(bitmap, strip, ratio, deadline)) return;
    }
    bitmap.done = true;
  }

  #paintStrip(bitmap: Bitmap, strip: Strip, ratio: number, deadline: number): boolean {
    const { context, mapping } = bitmap;
    const whole = strip.from <= 0 && strip.to >= mapping.box.width;
    const from = whole ? Number.NEGATIVE_INFINITY : mapping.fromX(strip.from - BLEED);
    const to = whole ? Number.POSITIVE_INFINITY : mapping.fromX(strip.to + BLEED);
    for (; bitmap.part < this.#parts.length; bitmap.part++, bitmap.trace = 0) {
      const part = this.#parts[bitmap.part];
      if (!part) continue;
      context.save();
      context.beginPath();
      context.rect(strip.from, 0, strip.to - strip.from, mapping.box.height);
      context.clip();
      this.#clip(context, mapping, bitmap.part);
      while (bitmap.trace < part.traces.length) {
        const styled = part.traces[bitmap.trace++];
        if (styled) paintTrace(context, styled, mapping, ratio, part.traces.length, from, to);
        if (performance.now() > deadline) {
          context.restore();
          return false;
        }
      }
      context.restore();
    }
    return true;
  }

  /** To the part's own stretch, without those of later parts. */
  #clip(context: CanvasRenderingContext2D, mapping: Mapping, index: number): void {
    const { width, height } = mapping.box;
    const part = this.#parts[index];
    if (part && part.from !== null && part.to !== null) {
      const left = Math.floor(mapping.toX(part.from)) - 1;
      context.beginPath();
      context.rect(left, 0, Math.ceil(mapping.toX(part.to)) + 1 - left, height);
      context.clip();
    }
    for (const later of this.#parts.slice(index + 1)) {
      if (later.from === null || later.to === null) continue;
      const left = Math.max(0, Math.floor(mapping.toX(later.from)));
      const right = Math.min(width, Math.ceil(mapping.toX(later.to)));
      context.beginPath();
      context.rect(0, 0, left, height);
      context.rect(right, 0, width - right, height);
      context.clip();
    }
  }
}

/** Are these the same traces in the same colours, perhaps with more rows? */
function sameLines(before: readonly LayerPart[], after: readonly LayerPart[]): boolean {
  return (
    before.length === after.length &&
    before.every((part, at) => {
      const other = after[at];
      return (
        other?.from === part.from &&
        other.to === part.to &&
        other.traces.length === part.traces.length &&
        part.traces.every(({ trace, colour, dashed }, line) => {
          const styled = other.traces[line];
          return styled?.trace === trace && styled.colour === colour && styled.dashed === dashed;
        })
      );
    })
  );
}

function covers(bitmap: Bitmap, { x, y, box }: Mapping): boolean {
  const { mapping } = bitmap;
  return (
    mapping.toX(x.min) >= -CLOSE &&
    mapping.toX(x.max) <= mapping.box.width + CLOSE &&
    Math.abs(mapping.toY(y.max)) <= CLOSE &&
    Math.abs(mapping.toY(y.min) - box.height) <= CLOSE
  );
}

function hasSlack({ mapping: own }: Bitmap, { x, box }: Mapping): boolean {
  const slack = box.width * SLACK;
  return own.toX(x.min) >= slack && own.box.width - own.toX(x.max) >= slack;
}

function isSharp(bitmap: Bitmap, mapping: Mapping): boolean {
  const { x, y, canvas } = bitmap;
  if (x.log !== mapping.x.log || y.log !== mapping.y.log || canvas.height !== mapping.box.height) return false;
  const width = mapping.toX(x.max) - mapping.toX(x.min);
  const height = mapping.toY(y.min) - mapping.toY(y.max);
  return Math.abs(width - canvas.width) <= CLOSE && Math.abs(height - canvas.height) <= CLOSE;
}
