/** `Plot`: one canvas of uPlot, which has the axes, with the lines of a `LineLayer` on it. */
import uPlot from "uplot";
import { cancelFrame, type Drawn, isHandsOn, requestFrame } from "./frames";
import { type Box, Mapping } from "./geometry";
import { type LayerPart, LineLayer } from "./layer";
import { type Ink, paintClipped, paintHighlight, paintMark, paintRing, type StyledTrace } from "./paint";
import { type Range, yRange } from "./range";
import { type Scale, type ScaleKind, type Tick, ticks } from "./scale";

/** What a plot shows. */
export interface PlotContent {
  /** Parts from the coarsest to the finest: each covers those before it where it has data. */
  readonly parts: readonly LayerPart[];
  /** The lines in sight, for warnings and resumes. */
  readonly lines: readonly StyledTrace[];
  readonly x: Range;
  readonly kind: ScaleKind;
  readonly logX: boolean;
  readonly logY: boolean;
  readonly clip: boolean;
  /** Points that are marked by a ring. */
  readonly rings: readonly { x: number; y: number; colour: string }[];
  /** Show where runs were resumed. */
  readonly resumes: boolean;
  /** Finer lines of this stretch are on their way: until then what is painted is stretched. */
  readonly awaiting: boolean;
}

const AXIS_WIDTH = 46; // CSS pixels
const AXIS_HEIGHT = 22;
const TOP = 8;
const RIGHT = 10;
const TICK_GAP = 6;
const DIMMED = 0.28; // opacity of what is not highlighted
const Y_TICK_EVERY = 46; // CSS pixels
const X_TICK_EVERY = 92;

export class Plot implements Drawn {
  readonly #host: HTMLElement;
  readonly #ink: () => Ink;
  readonly #layer = new LineLayer();
  #plot: uPlot | null = null;
  #content: PlotContent | null = null;
  #width = 0;
  #height = 0;
  #x: Scale = { min: 0, max: 1, log: false, kind: "count" };
  #y: Scale = { min: 0, max: 1, log: false, kind: "number" };
  #xTicks: Tick[] = [];
  #yTicks: Tick[] = [];
  #deadline = Number.POSITIVE_INFINITY;
  #unfinished = false;
  #drawn = "";
  #shown = true;
  #highlight: readonly StyledTrace[] = [];
  #dimmed = false;
  /** Called after each frame, so that what lies above the canvas can follow. */
  onFrame: (() => void) | null = null;

  constructor(host: HTMLElement, ink: () => Ink) {
    this.#host = host;
    this.#ink = ink;
  }

  /** The part of the canvas between the axes, in CSS pixels. */
  get box(): Box {
    return {
      left: AXIS_WIDTH,
      top: TOP,
      width: Math.max(1, this.#width - AXIS_WIDTH - RIGHT),
      height: Math.max(1, this.#height - TOP - AXIS_HEIGHT),
    };
  }

  /** From values to CSS pixels of the canvas, as they are on the screen now. */
  get mapping(): Mapping {
    return new Mapping(this.#x, this.#y, this.box);
  }

  /** The element between the axes, for pointers. */
  get over(): HTMLElement | null {
    return this.#plot?.over ?? null;
  }

  get canvas(): HTMLCanvasElement | null {
    return this.#plot?.ctx.canvas ?? null;
  }

  get scales(): { x: Scale; y: Scale; xTicks: readonly Tick[]; yTicks: readonly Tick[] } {
    return { x: this.#x, y: this.#y, xTicks: this.#xTicks, yTicks: this.#yTicks };
  }

  setSize(width: number, height: number): void {
    if (width === this.#width && height === this.#height) return;
    this.#width = width;
    this.#height = height;
    if (width > 0 && height > 0) {
      this.#plot?.setSize({ width, height });
      requestFrame(this);
    }
  }

  /** New lines: also to be called when traces have grown. */
  setContent(content: PlotContent): void {
    const before = this.#content;
    this.#content = content;
    if (before?.parts !== content.parts) this.#layer.setParts(content.parts);
    if (before && (before.logX !== content.logX || before.logY !== content.logY)) this.#end();
    if (this.#shown) requestFrame(this);
  }

  /** Nothing to show. */
  clear(): void {
    this.#content = null;
    this.#end();
    this.#layer.release();
    this.#drawn = "";
    delete this.#host.dataset.drawn;
    delete this.#host.dataset.drawnX;
  }

  /** Some traces above the others. `dim`: those are fainter. */
  highlight(styled: readonly StyledTrace[], dim: boolean): void {
    const same = this.#highlight.length === styled.length && styled.every((one, at) => this.#highlight[at] === one);
    if (same && this.#dimmed === dim) return;
    this.#highlight = styled;
    this.#dimmed = dim;
    if (this.#shown) requestFrame(this);
  }

  /** The y axis may fit what is shown again: the hand rests. */
  refit(): void {
    if (this.#shown) requestFrame(this);
  }

  /** Other colours. */
  repaint(): void {
    this.#layer.invalidate();
    if (this.#shown) requestFrame(this);
  }

  /** Whether it is on the screen: else it is not drawn and keeps no bitmaps. */
  setShown(shown: boolean): void {
    this.#shown = shown;
    if (shown) requestFrame(this);
    else this.#layer.release();
  }

  frame(deadline: number): boolean {
    const content = this.#content;
    if (!content || !this.#shown || this.#width <= 0 || this.#height <= 0) return false;
    const y = this.#y;
    this.#x = { ...content.x, log: content.logX, kind: content.kind };
    if (!isHandsOn() || !this.#plot) this.#y = this.#fittedY(content);
    this.#xTicks = ticks(this.#x, Math.round(this.box.width / X_TICK_EVERY));
    if (this.#y !== y) this.#yTicks = ticks(this.#y, Math.round(this.box.height / Y_TICK_EVERY));
    this.#deadline = deadline;
    this.#unfinished = false;
    if (!this.#plot) this.#plot = this.#begin();
    const { min, max } = this.#x;
    const { min: bottom, max: top } = this.#y;
    this.#plot.batch((plot: uPlot) => {
      plot.setScale("x", { min, max });
      plot.setScale("y", { min: bottom, max: top });
    });
    if (!this.#unfinished && !content.awaiting) this.#tellDrawn(content.parts.at(-1));
    this.onFrame?.();
    return this.#unfinished;
  }

  /**
   * Says on the element what stands on the screen, for tests, benchmarks and whoever takes pictures: `data-drawn`, the
   * rows of its runs up to the last that is drawn; `data-drawn-x`, the stretch of x for which these lines were fetched.
   */
  #tellDrawn(finest: LayerPart | undefined): void {
    const rows = finest?.traces.reduce((sum, { trace }) => sum + trace.position, 0) ?? 0;
    const stretch = finest?.from == null ? "all" : `${finest.from}:${finest.to}`;
    const drawn = `${rows} ${stretch}`;
    if (drawn === this.#drawn) return; // to ask the element itself would cost more than a frame has
    this.#drawn = drawn;
    this.#host.dataset.drawn = `${rows}`;
    this.#host.dataset.drawnX = stretch;
  }

  destroy(): void {
    cancelFrame(this);
    this.#end();
    this.#layer.release();
  }

  #end(): void {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** While a hand drags, the axis stays as it is; it fits what is shown as soon as the hand rests. */
  #fittedY({ parts, x, clip, logY }: PlotContent): Scale {
    const traces = parts.flatMap((part) => part.traces.map((styled) => styled.trace));
    const finest = parts.at(-1);
    const covered = finest?.from != null && finest.to != null && finest.from <= x.min && finest.to >= x.max;
    const shown = covered ? (finest?.traces.map((styled) => styled.trace) ?? []) : traces;
    const fitted = yRange(shown, x, { clip, log: logY });
    return { ...(fitted ?? (logY ? { min: 0.1, max: 10 } : { min: 0, max: 1 })), log: logY, kind: "count" };
  }

  #begin(): uPlot {
    const font = () => this.#ink().font;
    const axis = (scale: string, amount: () => readonly Tick[]): uPlot.Axis => ({
      scale,
      stroke: () => this.#ink().faint,
      font: font(),
      gap: TICK_GAP,
      space: 1,
      incrs: [1e300], // any that uPlot takes: `splits` alone says where ticks stand
      splits: () => amount().map((tick) => tick.value),
      values: () => amount().map((tick) => tick.text),
      ticks: { show: false },
      rotate: 0,
    });
    const distribution = (log: boolean): uPlot.Scale =>
      log ? { distr: 3, log: 10, time: false, auto: false } : { distr: 1, time: false, auto: false };
    const range: uPlot.Range.Function = (_plot, min, max) => [min ?? 1, max ?? 10]; // before the first frame: of any axis
    const options: uPlot.Options = {
      width: this.#width,
      height: this.#height,
      padding: [TOP, RIGHT, 0, 0],
      legend: { show: false },
      cursor: { show: false },
      select: { show: false, left: 0, top: 0, width: 0, height: 0 },
      scales: { x: { ...distribution(this.#x.log), range }, y: { ...distribution(this.#y.log), range } },
      series: [{}],
      axes: [
        // Its texts are painted with the lines: uPlot lets the last of them go beyond the canvas.
        {
          ...axis("x", () => this.#xTicks),
          values: (_, splits) => splits.map(() => ""),
          size: AXIS_HEIGHT,
          grid: { show: false },
        },
        {
          ...axis("y", () => this.#yTicks),
          side: 3,
          size: AXIS_WIDTH,
          grid: { show: true, stroke: () => this.#ink().line, width: 1 },
        },
      ],
      hooks: { draw: [(plot) => this.#draw(plot)] },
    };
    return new uPlot(options, [[]], this.#host);
  }

  #draw(plot: uPlot): void {
    const content = this.#content;
    if (!content) return;
    const { ctx } = plot;
    const ratio = uPlot.pxRatio;
    const mapping = new Mapping(this.#x, this.#y, plot.bbox);
    this.#paintXTexts(ctx, mapping, ratio);
    const ahead = isHandsOn();
    const stretched = content.awaiting && this.#layer.isPainted;
    this.#unfinished = !stretched && !this.#layer.paint(mapping, ratio, this.#deadline, ahead);
    ctx.save();
    ctx.globalAlpha = this.#dimmed ? DIMMED : 1;
    this.#layer.draw(ctx, mapping);
    ctx.globalAlpha = 1;
    ctx.beginPath();
    ctx.rect(plot.bbox.left, plot.bbox.top - 4 * ratio, plot.bbox.width + 4 * ratio, plot.bbox.height + 6 * ratio);
    ctx.clip();
    for (const styled of this.#highlight) {
      paintHighlight(ctx, styled, mapping, ratio, this.#ink(), content.lines.length);
    }
    if (content.clip) for (const styled of content.lines) paintClipped(ctx, styled, mapping, ratio);
    if (content.resumes) this.#paintResumes(ctx, content, mapping, ratio);
    this.#paintMarks(ctx, content, mapping, ratio);
    for (const ring of content.rings) {
      if (ring.x < this.#x.min || ring.x > this.#x.max) continue;
      const y = clamp(mapping.toY(ring.y), plot.bbox.top, plot.bbox.top + plot.bbox.height);
      if (!Number.isNaN(y)) paintRing(ctx, mapping.toX(ring.x), y, ring.colour, ratio, this.#ink());
    }
    ctx.restore();
  }

  #paintXTexts(ctx: CanvasRenderingContext2D, mapping: Mapping, ratio: number): void {
    const { top, height } = mapping.box;
    ctx.save();
    ctx.fillStyle = this.#ink().faint;
    ctx.font = this.#ink().font.replace(/^\d+/, (size) => `${Number(size) * ratio}`);
    ctx.textAlign = "center";
    ctx.textBaseline = "top";
    for (const { value, text } of this.#xTicks) {
      const half = ctx.measureText(text).width / 2;
      const x = clamp(mapping.toX(value), half, ctx.canvas.width - half);
      ctx.fillText(text, Math.round(x), top + height + TICK_GAP * ratio);
    }
    ctx.restore();
  }

  #paintMarks(ctx: CanvasRenderingContext2D, { lines }: PlotContent, mapping: Mapping, ratio: number): void {
    const { top, height } = mapping.box;
    for (const { trace } of lines) {
      if (this.#dimmed && !this.#highlight.some((styled) => styled.trace === trace)) continue;
      for (const mark of trace.marks) {
        if (mark.x < this.#x.min || mark.x > this.#x.max) continue;
        const y = mapping.toY(markHeight(trace, mark.x, mark.kind));
        const inside = Number.isNaN(y) ? top + 6 * ratio : clamp(y, top + 5 * ratio, top + height - 4 * ratio);
        paintMark(ctx, mark.kind, mapping.toX(mark.x), inside, ratio, this.#ink());
      }
    }
  }

  #paintResumes(ctx: CanvasRenderingContext2D, { lines }: PlotContent, mapping: Mapping, ratio: number): void {
    const { top, height } = mapping.box;
    ctx.lineWidth = ratio;
    for (const { trace, colour } of lines) {
      if (trace.superseded) continue;
      ctx.strokeStyle = colour;
      ctx.globalAlpha = 0.6;
      ctx.setLineDash([2 * ratio, 3 * ratio]);
      ctx.beginPath();
      for (const x of trace.resumes) {
        if (x < this.#x.min || x > this.#x.max) continue;
        const px = Math.round(mapping.toX(x)) + 0.5;
        ctx.moveTo(px, top);
        ctx.lineTo(px, top + height);
      }
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.globalAlpha = 1;
  }
}

/** Where on the y axis a mark stands: at the extreme of its row for a spike, else on the line. */
export function markHeight(
  trace: StyledTrace["trace"],
  x: number,
  kind: StyledTrace["trace"]["marks"][number]["kind"],
): number {
  const row = trace.nearest(x);
  if (row < 0) return Number.NaN;
  return (kind === "spike" ? trace.high[row] : trace.line[row]) ?? Number.NaN;
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
