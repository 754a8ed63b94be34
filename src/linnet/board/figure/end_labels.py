"""Labels beside the right edge of a chart, at the height where each line ends, moved apart and never on a line."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from linnet.board.figure.colours import Theme, mixed
from linnet.board.figure.scene import Box, Marker, MarkerShape, Path, Scene, Text
from linnet.board.figure.typography import shortened, text_width

LABEL_SIZE = 11.5
_LINE = 15.0  # from one label to the next
_SWATCH = 18.0  # the piece of line before a label
_GAP = 8.0
_EDGE = 14.0
_WIDEST = 0.32  # of the picture
_FAINT = 0.34  # of a colour, in what leads from a line to its label


@dataclass(frozen=True)
class EndLabel:
    """What is written for a line that ends at `x`, `y`; `marker`: for points instead of a line."""

    x: float
    y: float
    text: str
    colour: str
    dash: tuple[float, ...] = ()
    marker: MarkerShape | None = None


def label_room(texts: set[str], width: float) -> float:
    """Pixels at the right of the picture that labels need."""
    return _text_room(texts, width) + _SWATCH + _GAP + _EDGE


def _text_room(texts: set[str], width: float) -> float:
    return min(width * _WIDEST, max(text_width(text, LABEL_SIZE) for text in texts))


def draw_labels(scene: Scene, box: Box, labels: list[EndLabel], theme: Theme) -> None:
    """Labels beside the ends of the lines; of more than there is room for, the uppermost and how many more."""
    labels = sorted(labels, key=lambda label: (label.y, label.text))
    room = max(1, int((box.height + _LINE) // _LINE))
    shown = labels[: room - 1] if len(labels) > room else labels
    places = apart([label.y for label in shown], _LINE, box.top, box.bottom)
    begin = box.right + _GAP
    text_at = begin + _SWATCH + 5
    width = scene.width - text_at - _EDGE / 2
    for label, y in zip(shown, places, strict=True):
        if label.x < box.right - 3 or abs(label.y - y) > 3:
            lead = np.array([[label.x, label.y], [max(label.x, box.right - 2), label.y], [begin, y]])
            scene.shapes.append(Path([lead], mixed(label.colour, theme.ground, _FAINT), 0.8))
        if label.marker is None:
            swatch = np.array([[begin, y], [begin + _SWATCH, y]])
            scene.shapes.append(Path([swatch], label.colour, 2.2, label.dash))
        else:
            scene.shapes.append(Marker(begin + _SWATCH / 2, y, 4.0, label.colour, label.marker))
        text = shortened(label.text, width, LABEL_SIZE)
        title = label.text if text != label.text else ""
        scene.shapes.append(Text(text_at, y + LABEL_SIZE * 0.36, text, LABEL_SIZE, theme.text, title=title))
    if len(shown) < len(labels):
        y = min(box.bottom, (places[-1] if places else box.top) + _LINE)
        remark = f"and {len(labels) - len(shown)} more"
        scene.shapes.append(Text(text_at, y + LABEL_SIZE * 0.36, remark, LABEL_SIZE, theme.dim))


def apart(wanted: list[float], least: float, top: float, bottom: float) -> list[float]:
    """Rising positions moved as little as makes them `least` apart, between `top` and `bottom`.

    Positions less the room that those before them need must not fall: pooled where they do, each pool at its mean.
    """
    pools: list[list[float]] = []  # sum, count
    for at, y in enumerate(wanted):
        pools.append([y - at * least, 1.0])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    settled = [total / count for total, count in pools for _ in range(int(count))]
    lowest = bottom - (len(wanted) - 1) * least
    return [max(top, min(y, lowest)) + at * least for at, y in enumerate(settled)]
