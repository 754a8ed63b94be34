/** A chart as SVG, written from the same numbers as the one on the screen. */
import { type Figure, layOut, type Picture, SWATCH } from "./figure";
import { bandPath, linePath, type PathSink, rowPath, rowsInside, spikePath } from "./geometry";
import { bandOpacity, DASH, FAINT, FAINT_WIDTH, lineWidth, MOST_BANDS, type StyledTrace } from "./paint";

class PathText implements PathSink {
  #text = "";
  moveTo(x: number, y: number): void {
    this.#text += `M${x.toFixed(1)} ${y.toFixed(1)}`;
  }
  lineTo(x: number, y: number): void {
    this.#text += `L${x.toFixed(1)} ${y.toFixed(1)}`;
  }
  closePath(): void {
    this.#text += "Z";
  }
  get text(): string {
    return this.#text;
  }
}

export function svgOf(picture: Picture, width?: number, height?: number): string {
  const figure = layOut(picture, width, height);
  const { box } = figure.mapping;
  const { ink } = picture;
  const grid = figure.yTicks.map((tick) => {
    const y = figure.mapping.toY(tick.value).toFixed(1);
    return `<path d="M${box.left} ${y}H${box.left + box.width}" stroke="${ink.line}"/>`;
  });
  const lines = picture.styled.map((styled) => traceSvg(styled, figure, picture.styled.length));
  const rings = picture.rings
    .filter(({ x }) => x >= picture.x.min && x <= picture.x.max)
    .map(({ x, y, colour }) => {
      const [cx, cy] = [figure.mapping.toX(x).toFixed(1), figure.mapping.toY(y).toFixed(1)];
      return `<circle cx="${cx}" cy="${cy}" r="3.4" fill="${ink.panel}" stroke="${escaped(colour)}" stroke-width="2"/>`;
    });
  const swatches = figure.swatches.map(({ x, y, styled }) => {
    const dash = styled.dashed ? ` stroke-dasharray="${DASH.join(" ")}"` : "";
    return `<path d="M${x} ${y}h${SWATCH}" stroke="${escaped(styled.colour)}" stroke-width="2.5"${dash}/>`;
  });
  const texts = figure.texts.map(({ x, y, text, size, anchor, tone, bold }) => {
    const weight = bold ? ' font-weight="600"' : "";
    return `<text x="${x.toFixed(1)}" y="${y.toFixed(1)}" font-size="${size}" text-anchor="${anchor}" fill="${ink[tone]}"${weight}>${escaped(text)}</text>`;
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" width="${figure.width}" height="${figure.height}" viewBox="0 0 ${figure.width} ${figure.height}" font-family="system-ui, sans-serif">`,
    `<title>${escaped(picture.title)}</title>`,
    `<rect width="100%" height="100%" fill="${ink.panel}"/>`,
    `<clipPath id="box"><rect x="${box.left}" y="${box.top - 3}" width="${box.width + 4}" height="${box.height + 6}"/></clipPath>`,
    ...grid,
    `<g clip-path="url(#box)" fill="none" stroke-linejoin="round">`,
    ...lines,
    ...rings,
    "</g>",
    ...swatches,
    ...texts,
    "</svg>",
    "",
  ].join("\n");
}

function traceSvg(styled: StyledTrace, { mapping }: Figure, traces: number): string {
  const { trace } = styled;
  const colour = escaped(styled.colour);
  const [first, end] = rowsInside(trace, mapping);
  const parts: string[] = [];
  const thinned = trace.low !== trace.mean;
  const hasBand = !trace.superseded && traces <= MOST_BANDS;
  if (thinned && hasBand) {
    const band = new PathText();
    bandPath(band, trace, mapping, first, end);
    parts.push(
      `<path d="${band.text}" fill="${colour}" fill-opacity="${bandOpacity(traces, styled.spread).toFixed(3)}"/>`,
    );
  }
  if (trace.smooth && hasBand) {
    const raw = new PathText();
    if (thinned) rowPath(raw, trace, mapping, first, end);
    else linePath(raw, trace, trace.mean, mapping, first, end);
    if (raw.text) parts.push(`<path d="${raw.text}" stroke="${colour}" stroke-opacity="0.28"/>`);
  }
  if (!styled.spread) {
    const spikes = new PathText();
    spikePath(spikes, trace, mapping);
    if (spikes.text) parts.push(`<path d="${spikes.text}" stroke="${colour}" stroke-opacity="0.5"/>`);
  }
  const line = new PathText();
  linePath(line, trace, trace.line, mapping, first, end);
  const dash = trace.superseded ? "1.5 3" : styled.dashed ? DASH.join(" ") : "";
  const width = trace.grows ? lineWidth(traces) : FAINT_WIDTH;
  parts.push(
    `<path d="${line.text}" stroke="${colour}" stroke-width="${width}"${dash ? ` stroke-dasharray="${dash}"` : ""}${
      trace.grows ? "" : ` stroke-opacity="${FAINT}"`
    }/>`,
  );
  return parts.join("\n");
}

function escaped(text: string): string {
  // Control characters are not allowed in XML at all.
  const visible = [...text].filter((letter) => letter >= " " || letter === "\t").join("");
  return visible.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/"/g, "&quot;");
}
