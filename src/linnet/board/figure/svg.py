"""Scenes as SVG: valid XML, the same bytes for the same scene, coordinates in tenths of a pixel."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

import numpy as np

from linnet.board.figure.scene import Area, Box, Marker, Path, Points, Scene, Shape, Text
from linnet.board.words import plain

FONTS = "Inter, 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif"
_OUTLINES: dict[str, list[list[tuple[float, float]]]] = {  # of markers, around 0, 0
    "square": [[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]],
    "triangle": [[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)]],
    "diamond": [[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]],
    "cross": [[(-1.0, -1.0), (1.0, 1.0)], [(-1.0, 1.0), (1.0, -1.0)]],
}
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write_svg(scene: Scene, prefix: str = "c") -> bytes:
    """The scene as an SVG file. Its size is that of the scene; it scales, since all of it is lines and text.

    `prefix`: of the ids in it, which must differ between pictures that stand in one HTML page.
    """
    boxes = list(dict.fromkeys(shape.clip for shape in scene.shapes if isinstance(shape, Path | Area) and shape.clip))
    clips = {box: f"{prefix}{number}" for number, box in enumerate(boxes)}
    width, height = _number(scene.width), _number(scene.height)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="{FONTS}">',
        f"<title>{text_of(scene.title)}</title>",
        f"<desc>{text_of(scene.description)}</desc>",
    ]
    if clips:
        lines.append("<defs>" + "".join(_clip_path(box, name) for box, name in clips.items()) + "</defs>")
    lines.append(f'<rect width="{width}" height="{height}" fill="{scene.ground}"/>')
    lines += [_element(shape, clips) for shape in scene.shapes]
    return ("\n".join([*lines, "</svg>"]) + "\n").encode()


def text_of(text: str) -> str:
    """Foreign text for XML: no characters that steer, none that XML forbids, its signs escaped."""
    return escape(_NOT_XML.sub("\ufffd", plain(text)))


def _element(shape: Shape, clips: dict[Box, str]) -> str:
    match shape:
        case Path():
            dash = f' stroke-dasharray="{" ".join(map(_number, shape.dash))}"' if shape.dash else ""
            cap = ' stroke-linecap="round"' if not shape.dash else ""
            attributes = (
                f'fill="none" stroke="{shape.colour}" stroke-width="{_number(shape.width, 2)}" '
                f'stroke-linejoin="round"{cap}{dash}{_clip(shape.clip, clips)}'
            )
            return _titled(f'path d="{path_data(shape.pieces)}" {attributes}', "path", shape.title)
        case Area():
            data = path_data(shape.pieces, closed=True)
            opacity = f'fill-opacity="{_number(shape.opacity, 2)}"'
            return f'<path d="{data}" fill="{shape.colour}" {opacity}{_clip(shape.clip, clips)}/>'
        case Marker():
            return _marker(shape)
        case Text():
            return _text(shape)


def _text(shape: Text) -> str:
    anchor = f' text-anchor="{shape.anchor}"' if shape.anchor != "start" else ""
    weight = ' font-weight="600"' if shape.bold else ""
    turn = f' transform="rotate(-90 {_number(shape.x)} {_number(shape.y)})"' if shape.turned else ""
    title = f"<title>{text_of(shape.title)}</title>" if shape.title else ""
    position = f'x="{_number(shape.x)}" y="{_number(shape.y)}" font-size="{_number(shape.size)}" fill="{shape.colour}"'
    return f"<text {position}{anchor}{weight}{turn}>{title}{text_of(shape.text)}</text>"


def _marker(shape: Marker) -> str:
    x, y, r = _number(shape.x), _number(shape.y), _number(shape.radius)
    edge = f' stroke="{shape.edge}" stroke-width="1"' if shape.edge else ""
    opacity = f' opacity="{_number(shape.opacity, 2)}"' if shape.opacity < 1 else ""
    if shape.shape == "circle":
        return _titled(f'circle cx="{x}" cy="{y}" r="{r}" fill="{shape.colour}"{edge}{opacity}', "circle", shape.title)
    outline = marker_outline(shape)
    if shape.shape == "cross":
        data = path_data(outline)
        attributes = f'fill="none" stroke="{shape.colour}" stroke-width="1.8" stroke-linecap="round"{opacity}'
        return _titled(f'path d="{data}" {attributes}', "path", shape.title)
    data = path_data(outline, closed=True)
    return _titled(f'path d="{data}" fill="{shape.colour}"{edge}{opacity}', "path", shape.title)


def marker_outline(shape: Marker) -> list[Points]:
    """The corners of a marker that is no circle; of a cross, its two strokes."""
    outlines = [np.array(piece) for piece in _OUTLINES[shape.shape]]
    return [outline * shape.radius + (shape.x, shape.y) for outline in outlines]


def _titled(start: str, name: str, title: str) -> str:
    return f"<{start}><title>{text_of(title)}</title></{name}>" if title else f"<{start}/>"


def _clip(box: Box | None, clips: dict[Box, str]) -> str:
    return f' clip-path="url(#{clips[box]})"' if box is not None else ""


def _clip_path(box: Box, name: str) -> str:
    """Half a line more than the box, so that a line along its edge is whole."""
    position = f'x="{_number(box.left - 2)}" y="{_number(box.top - 2)}"'
    size = f'width="{_number(box.width + 4)}" height="{_number(box.height + 4)}"'
    return f"<clipPath id={quoteattr(name)}><rect {position} {size}/></clipPath>"


def path_data(pieces: list[Points], closed: bool = False) -> str:
    """Points as the `d` of a path: absolute where a piece begins, then from point to point, in tenths of a pixel."""
    parts: list[str] = []
    for piece in pieces:
        tenths = np.round(piece * 10).astype(np.int64)
        moves = np.diff(tenths, axis=0)
        moves = moves[np.any(moves != 0, axis=1)]
        parts.append(f"M{_tenths(tenths[0, 0])} {_tenths(tenths[0, 1])}")
        if not len(moves):
            parts.append("h0")  # a dot, by its round ends
            continue
        texts = [f"{_tenths(dx)}{'' if dy < 0 else ' '}{_tenths(dy)}" for dx, dy in moves.tolist()]
        joined = texts[0] + "".join(text if text.startswith("-") else f" {text}" for text in texts[1:])
        parts.append(f"l{joined}{'z' if closed else ''}")
    return "".join(parts)


def _tenths(count: int) -> str:
    whole, tenth = divmod(abs(int(count)), 10)
    sign = "-" if count < 0 else ""
    return f"{sign}{whole}" if not tenth else f"{sign}{whole or ''}.{tenth}"


def _number(value: float, decimals: int = 1) -> str:
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
