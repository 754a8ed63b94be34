/** A chart as PNG: the same picture as the SVG, painted on a canvas twice as fine. */
import { layOut, type Picture, SWATCH } from "./figure";
import { DASH, paintRing, paintTrace } from "./paint";

const RATIO = 2;

export function pngOf(picture: Picture, width?: number, height?: number): Promise<Blob> {
  const figure = layOut(picture, width, height);
  const canvas = document.createElement("canvas");
  canvas.width = figure.width * RATIO;
  canvas.height = figure.height * RATIO;
  const context = canvas.getContext("2d");
  if (!context) return Promise.reject(new Error("this browser has no canvas to paint on"));
  const { mapping } = figure;
  const { ink } = picture;
  context.scale(RATIO, RATIO);
  context.fillStyle = ink.panel;
  context.fillRect(0, 0, figure.width, figure.height);
  context.strokeStyle = ink.line;
  context.lineWidth = 1;
  for (const tick of figure.yTicks) {
    const y = mapping.toY(tick.value);
    context.beginPath();
    context.moveTo(mapping.box.left, y);
    context.lineTo(mapping.box.left + mapping.box.width, y);
    context.stroke();
  }
  context.save();
  context.beginPath();
  context.rect(mapping.box.left, mapping.box.top - 3, mapping.box.width + 4, mapping.box.height + 6);
  context.clip();
  for (const styled of picture.styled) paintTrace(context, styled, mapping, 1, picture.styled.length);
  for (const { x, y, colour } of picture.rings) {
    if (x >= picture.x.min && x <= picture.x.max) paintRing(context, mapping.toX(x), mapping.toY(y), colour, 1, ink);
  }
  context.restore();
  for (const { x, y, styled } of figure.swatches) {
    context.beginPath();
    context.strokeStyle = styled.colour;
    context.lineWidth = 2.5;
    context.setLineDash(styled.dashed ? [...DASH] : []);
    context.moveTo(x, y);
    context.lineTo(x + SWATCH, y);
    context.stroke();
  }
  for (const { x, y, text, size, anchor, tone, bold } of figure.texts) {
    context.font = `${bold ? "600 " : ""}${size}px system-ui, sans-serif`;
    context.textAlign = anchor === "middle" ? "center" : anchor;
    context.fillStyle = ink[tone];
    context.fillText(text, x, y);
  }
  return new Promise((resolve, reject) => {
    canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the picture could not be made"))), "image/png");
  });
}
