"""A picture as plain shapes, in pixels from the upper left corner: what a chart is drawn as, and what writers take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # rows of x and y
Anchor = Literal["start", "middle", "end"]
MarkerShape = Literal["circle", "square", "triangle", "diamond", "cross"]


@dataclass(frozen=True)
class Box:
    """A rectangle."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def width(self) -> float:
        return self.right - self.left

    @property
    def height(self) -> float:
        return self.bottom - self.top


@dataclass(frozen=True)
class Path:
    """Lines through points, one for each of `pieces`; a piece of one point is a dot as wide as the line.

    - `dash`: lengths of strokes and gaps; none for an unbroken line.
    - `clip`: nothing outside of this box is drawn.
    - `title`: what a reader who points at it is told.
    """

    pieces: list[Points]
    colour: str
    width: float
    dash: tuple[float, ...] = ()
    clip: Box | None = None
    title: str = ""


@dataclass(frozen=True)
class Area:
    """Filled polygons without an edge, in a colour that lets `opacity` of it through."""

    pieces: list[Points]
    colour: str
    opacity: float
    clip: Box | None = None


@dataclass(frozen=True)
class Marker:
    """A small sign at a point; `edge`: the colour around it, which keeps it apart from what lies below."""

    x: float
    y: float
    radius: float
    colour: str
    shape: MarkerShape = "circle"
    edge: str = ""
    opacity: float = 1.0
    title: str = ""


@dataclass(frozen=True)
class Text:
    """A line of text on its baseline; `turned`: it reads upwards. `title`: the whole of a text that was cut."""

    x: float
    y: float
    text: str
    size: float
    colour: str
    anchor: Anchor = "start"
    bold: bool = False
    turned: bool = False
    title: str = ""


Shape = Path | Area | Marker | Text


@dataclass
class Scene:
    """Shapes from the lowest to the uppermost; `title` and `description` are for those who cannot see them."""

    width: float
    height: float
    ground: str
    title: str = ""
    description: str = ""
    shapes: list[Shape] = field(default_factory=list)

    def line(self, x1: float, y1: float, x2: float, y2: float, colour: str, width: float = 1.0) -> None:
        """A straight line."""
        self.shapes.append(Path([np.array([[x1, y1], [x2, y2]])], colour, width))
