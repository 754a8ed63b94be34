import { field } from "../charts/csv";
import { save } from "../charts/export";
import { MoreIcon } from "../charts/icons";
import { Menu } from "../charts/menu";
import type { Cell } from "./data-table";
import { problem } from "./toast";

const SCALE = 2; // pixels of a PNG for each of the page
/** What the look of an SVG depends on; a file has no style sheet. */
const KEPT = [
  "fill",
  "stroke",
  "stroke-width",
  "stroke-dasharray",
  "opacity",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "dominant-baseline",
  "paint-order",
] as const;

interface PictureMenuProps {
  /** The picture; null while it is not drawn. */
  picture: () => SVGSVGElement | null;
  /** Of the file, without its ending. */
  name: string;
  /** The numbers behind it, the names of columns first. */
  table?: () => readonly (readonly Cell[])[];
}

/** Saves a picture of the page as SVG or PNG, and its numbers as CSV. */
export function PictureMenu({ picture, name, table }: PictureMenuProps) {
  const saved = (make: (svg: SVGSVGElement) => Blob | Promise<Blob>, ending: string) => async () => {
    try {
      const svg = picture();
      if (svg) save(await make(svg), `${name}.${ending}`);
    } catch (error) {
      problem(error);
    }
  };
  const items = [
    { text: "save as PNG", run: () => void saved(pngOf, "png")() },
    {
      text: "save as SVG",
      run: () => void saved((svg) => new Blob([svgText(svg)], { type: "image/svg+xml" }), "svg")(),
    },
    ...(table
      ? [{ text: "save as CSV", run: () => save(new Blob([csvText(table())], { type: "text/csv" }), `${name}.csv`) }]
      : []),
  ];
  return (
    <Menu label={`save ${name}`} groups={[items]}>
      <MoreIcon />
    </Menu>
  );
}

/** The picture as a file that stands by itself: with its styles, its size and its ground. */
export function svgText(svg: SVGSVGElement): string {
  const copy = svg.cloneNode(true) as SVGSVGElement;
  const copies = [copy, ...copy.querySelectorAll("*")];
  for (const [index, element] of [svg, ...svg.querySelectorAll("*")].entries()) {
    const style = getComputedStyle(element);
    const target = copies[index];
    target?.removeAttribute("class");
    for (const name of KEPT) {
      const value = style.getPropertyValue(name);
      if (value) target?.setAttribute(name, value);
    }
  }
  const { width, height } = svg.getBoundingClientRect();
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(Math.round(width)));
  copy.setAttribute("height", String(Math.round(height)));
  copy.style.background = getComputedStyle(document.body).backgroundColor;
  return new XMLSerializer().serializeToString(copy);
}

async function pngOf(svg: SVGSVGElement): Promise<Blob> {
  const { width, height } = svg.getBoundingClientRect();
  const address = URL.createObjectURL(new Blob([svgText(svg)], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.round(width * SCALE);
    canvas.height = Math.round(height * SCALE);
    const context = canvas.getContext("2d");
    if (!context) throw new Error("this browser has no canvas to paint on");
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture could not be made"))), "image/png"),
    );
  } finally {
    URL.revokeObjectURL(address);
  }
}

/** Rows as CSV. */
export function csvText(rows: readonly (readonly Cell[])[]): string {
  const cell = (value: Cell) => (typeof value === "string" ? field(value) : (value ?? ""));
  return `${rows.map((row) => row.map(cell).join(",")).join("\n")}\n`;
}
