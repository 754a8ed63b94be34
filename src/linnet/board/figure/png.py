"""Scenes as PNG. Lines are drawn here, by the distance of each pixel to them, which makes edges smooth; Pillow has the
fonts and writes the file.
"""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from linnet.board.figure.scene import Area, Box, Marker, Path, Points, Scene, Text
from linnet.board.figure.svg import marker_outline
from linnet.board.words import plain

Pixels = NDArray[np.float32]
_FINER = 4  # samples of a pixel, each way, at the edge of an area
_BOLD = 0.035  # of a text's size: by so much it is moved and written again, since there is one weight of the font
_DOTS_PER_INCH = 96  # of a picture at scale 1


def write_png(scene: Scene, scale: float = 2.0) -> bytes:
    """The scene as a PNG file of `scale` times its size in pixels."""
    from PIL import Image

    canvas = _Canvas(round(scene.width * scale), round(scene.height * scale), scene.ground, scale)
    for shape in scene.shapes:
        match shape:
            case Path():
                canvas.path(shape)
            case Area():
                canvas.fill(shape.pieces, shape.colour, shape.opacity, shape.clip)
            case Marker():
                canvas.marker(shape)
            case Text():
                canvas.text(shape)
    picture = Image.fromarray((canvas.pixels_HWC * 255 + 0.5).astype(np.uint8))
    file = io.BytesIO()
    dots = _DOTS_PER_INCH * scale
    picture.save(file, "PNG", optimize=True, dpi=(dots, dots))
    return file.getvalue()


def texts_with_boxes(scene: Scene) -> list[str]:
    """The texts of a scene of which a PNG written here shows some characters as boxes, for want of a font."""
    from linnet.board.figure.fonts import lacking

    texts = dict.fromkeys(plain(shape.text) for shape in scene.shapes if isinstance(shape, Text))
    return [text for text in texts if lacking(text)]


class _Mask:
    """How much of each pixel a shape covers, for the part of the picture in which it lies."""

    def __init__(self, canvas: _Canvas, left: float, top: float, right: float, bottom: float) -> None:
        self.left, self.top = max(0, int(np.floor(left))), max(0, int(np.floor(top)))
        right, bottom = min(canvas.width, int(np.ceil(right))), min(canvas.height, int(np.ceil(bottom)))
        self.coverage: Pixels = np.zeros((max(0, bottom - self.top), max(0, right - self.left)), np.float32)

    @classmethod
    def around(cls, canvas: _Canvas, pieces: list[Points], reach: float) -> _Mask:
        """For all that is within `reach` of these points."""
        points = np.concatenate(pieces)
        return cls(canvas, *(points.min(axis=0) - reach), *(points.max(axis=0) + reach))

    def stroke(self, points: Points, radius: float) -> None:
        """A line with round ends and joints: each pixel is covered by as much as it lies within the radius."""
        begins, ends = (points, points) if len(points) == 1 else (points[:-1], points[1:])
        weight = min(1.0, radius * 2)  # of a line thinner than a pixel
        reach = max(radius, 0.5) + 0.5
        height, width = self.coverage.shape
        for (x1, y1), (x2, y2) in zip(begins.tolist(), ends.tolist(), strict=True):
            x1, x2, y1, y2 = x1 - self.left, x2 - self.left, y1 - self.top, y2 - self.top
            left, right = max(0, int(min(x1, x2) - reach)), min(width, int(max(x1, x2) + reach) + 1)
            top, bottom = max(0, int(min(y1, y2) - reach)), min(height, int(max(y1, y2) + reach) + 1)
            if left >= right or top >= bottom:
                continue
            px = np.arange(left, right, dtype=np.float32) + 0.5 - x1
            py = np.arange(top, bottom, dtype=np.float32)[:, None] + 0.5 - y1
            dx, dy = x2 - x1, y2 - y1
            squared = dx * dx + dy * dy
            along = np.clip((px * dx + py * dy) / squared, 0, 1) if squared > 0 else np.float32(0)
            distance = np.hypot(px - along * dx, py - along * dy)
            part = self.coverage[top:bottom, left:right]
            np.maximum(part, np.clip(reach - distance, 0, 1) * weight, out=part)

    def cut(self, box: Box, scale: float) -> None:
        """Nothing outside of a box, and half a line more."""
        left, top = (box.left - 2) * scale - self.left, (box.top - 2) * scale - self.top
        right, bottom = (box.right + 2) * scale - self.left, (box.bottom + 2) * scale - self.top
        self.coverage[: max(0, round(top))] = 0
        self.coverage[max(0, round(bottom)) :] = 0
        self.coverage[:, : max(0, round(left))] = 0
        self.coverage[:, max(0, round(right)) :] = 0


class _Canvas:
    """Pixels that shapes are painted on, one above the other."""

    def __init__(self, width: int, height: int, ground: str, scale: float) -> None:
        self.width, self.height, self.scale = width, height, scale
        self.pixels_HWC: Pixels = np.broadcast_to(_rgb(ground), (height, width, 3)).copy()

    def path(self, path: Path) -> None:
        radius = path.width * self.scale / 2
        pieces = [piece * self.scale for piece in path.pieces]
        mask = _Mask.around(self, pieces, radius + 2)
        for piece in pieces:
            for stroke in _dashed(piece, [length * self.scale for length in path.dash]):
                mask.stroke(stroke, radius)
        if path.clip is not None:
            mask.cut(path.clip, self.scale)
        self._paint(mask, path.colour)

    def marker(self, marker: Marker) -> None:
        centre = np.array([[marker.x, marker.y]])
        if marker.edge:
            self._dot(centre, marker.radius + 1.0, marker.edge, marker.opacity)
        if marker.shape == "circle":
            self._dot(centre, marker.radius, marker.colour, marker.opacity)
        elif marker.shape == "cross":
            self.path(Path(marker_outline(marker), marker.colour, 1.8))
        else:
            self.fill(marker_outline(marker), marker.colour, marker.opacity, None)

    def fill(self, pieces: list[Points], colour: str, opacity: float, clip: Box | None) -> None:
        """Areas, sampled more finely than pixels and averaged."""
        from PIL import Image, ImageDraw

        scaled = [piece * self.scale for piece in pieces]
        mask = _Mask.around(self, scaled, 2.0)
        height, width = mask.coverage.shape
        if not height or not width:
            return
        fine = Image.new("L", (width * _FINER, height * _FINER))
        draw = ImageDraw.Draw(fine)
        for piece in scaled:
            corners = (piece - (mask.left, mask.top)) * _FINER - 0.5
            if len(corners) > 2:
                draw.polygon([(x, y) for x, y in corners.tolist()], fill=255)
        mask.coverage = np.asarray(fine.reduce(_FINER), np.float32) / np.float32(255)
        if clip is not None:
            mask.cut(clip, self.scale)
        self._paint(mask, colour, opacity)

    def text(self, text: Text) -> None:
        from PIL import Image, ImageDraw

        from linnet.board.figure.fonts import font_for

        shown = plain(text.text)
        font = font_for(shown, text.size * self.scale)
        x, y = text.x * self.scale, text.y * self.scale
        anchor = {"start": "ls", "middle": "ms", "end": "rs"}[text.anchor]
        left, top, right, bottom = font.getbbox(shown, anchor=anchor)
        if text.turned:
            mask = _Mask(self, x + top - 2, y - right - 2, x + bottom + 2, y - left + 2)
        else:
            mask = _Mask(self, x + left - 2, y + top - 2, x + right + 2, y + bottom + 2)
        height, width = mask.coverage.shape
        if not height or not width:
            return
        if text.turned:
            written = Image.new("L", (height, width))
            ImageDraw.Draw(written).text((height - (y - mask.top), x - mask.left), shown, 255, font, anchor)
            written = written.transpose(Image.Transpose.ROTATE_90)
        else:
            written = Image.new("L", (width, height))
            draw = ImageDraw.Draw(written)
            for moved in (0.0, text.size * self.scale * _BOLD) if text.bold else (0.0,):
                draw.text((x - mask.left + moved, y - mask.top), shown, 255, font, anchor)
        mask.coverage = np.asarray(written, np.float32) / np.float32(255)
        self._paint(mask, text.colour)

    def _dot(self, centre: Points, radius: float, colour: str, opacity: float) -> None:
        mask = _Mask.around(self, [centre * self.scale], radius * self.scale + 2)
        mask.stroke(centre * self.scale, radius * self.scale)
        self._paint(mask, colour, opacity)

    def _paint(self, mask: _Mask, colour: str, opacity: float = 1.0) -> None:
        height, width = mask.coverage.shape
        part = self.pixels_HWC[mask.top : mask.top + height, mask.left : mask.left + width]
        part += (_rgb(colour) - part) * (mask.coverage[:, :, None] * np.float32(opacity))


def _dashed(points: Points, dash: list[float]) -> list[Points]:
    """A line in strokes and gaps of these lengths, along it."""
    if not dash or len(points) < 2:
        return [points]
    steps = np.hypot(*np.diff(points, axis=0).T)
    along = np.concatenate([[0.0], np.cumsum(steps)])
    rounds = int(np.ceil(along[-1] / sum(dash))) if along[-1] > 0 else 1
    edges = np.concatenate([[0.0], np.cumsum(np.tile(dash, max(1, rounds)))])
    strokes: list[Points] = []
    for begin, end in zip(edges[:-1:2], edges[1::2], strict=False):
        if begin >= along[-1]:
            break
        end = min(end, along[-1])
        inner = points[(along > begin) & (along < end)]
        tips = np.column_stack([np.interp([begin, end], along, points[:, axis]) for axis in (0, 1)])
        strokes.append(np.vstack([tips[:1], inner, tips[1:]]))
    return strokes


def _rgb(colour: str) -> Pixels:
    return np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)], np.float32)
