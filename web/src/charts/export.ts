/** Saving what a chart shows: PNG, SVG, CSV. */
import { csvOf } from "./csv";
import { inSight, type Picture } from "./figure";
import type { MenuItem } from "./menu";
import { pngOf } from "./png";
import { type ChartSurface, ink } from "./surface";
import { svgOf } from "./svg";

/** What is in sight of a chart now. */
export function pictureOf(surface: ChartSurface, title: string): Picture {
  const { x, y } = surface.plot.scales;
  const { model } = surface;
  const content = model.content.value;
  return { title, axis: model.axis, x, y, styled: inSight(model.styled, x), rings: content?.rings ?? [], ink: ink() };
}

/** `failed`: told what went wrong. */
export function exportItems(surface: ChartSurface, title: string, failed: (error: unknown) => void): MenuItem[] {
  const { model } = surface;
  const picture = () => pictureOf(surface, title);
  return [
    {
      text: "save as PNG",
      run: () => void pngOf(picture()).then((blob) => save(blob, `${title}.png`), failed),
    },
    {
      text: "save as SVG",
      run: () => save(new Blob([svgOf(picture())], { type: "image/svg+xml" }), `${title}.svg`),
    },
    {
      text: "save as CSV",
      run: () => {
        const { x, styled } = picture();
        save(new Blob([csvOf(styled, model.axis, x)], { type: "text/csv" }), `${title}.csv`);
      },
    },
  ];
}

/** Lets the browser save a file. */
export function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name.replace(/[^\w.-]+/g, "-");
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
