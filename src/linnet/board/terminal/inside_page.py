"""`InsidePage`: what of a run's inside is looked at: which page, which figure of what, and where the cursor stands."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from linnet.board.analysis_results import AnalysisResult
from linnet.board.terminal.attention import AttentionRequest, newest_checkpoint
from linnet.board.watched_run import WatchedRun
from linnet.runs.inspection import Inspection

Page: TypeAlias = Literal["map", "spread", "time", "model", "CKA", "tokens", "recorded", "attention", "warnings"]
PAGES: tuple[Page, ...] = get_args(Page)
FigureName: TypeAlias = tuple[str, str]  # the group it was told by, and its own name
BESIDES = "besides the layers"  # what is no part of a layer
WHOLE_LAYER = "all of layer"
USUAL_REGION = "resid_post_block"
_OF_ROWS: tuple[Page, ...] = ("map", "spread")  # pages whose rows are layers
_WEIGHT = ".weight"  # behind the name of a tensor
_FAR = 10**9
_T = TypeVar("_T")


@dataclass
class InsidePage:
    """The selection in the inside tab. What there is to choose from is what was last drawn.

    - `figure`, `region`: what the map shows; None: the first there is. `heads`: rows are the heads of a layer.
    - `at_row`: where the cursor is on each page; `step`: of all pages, None: the newest, also when another comes.
    - `of_layer`: the layer whose heads, or whose regions, are the rows.
    - `toggled`: parts of trees that are open although they are shut at first, or the other way round.
    - `head`: of attention, None: the mean of all. `whole`: one finding has the page; `column`: the cursor in it.
    - `names`: regions and tensors of all figures. `figures`, `regions`, `steps`, `rows`, `layers` (of the rows),
      `row_names`: those there are. `cell_at`: row and step at a place of the screen.
    - `likeness`: of layers over the steps, `results`: of analyses; each behind what it was made of.
    """

    page: Page = "map"
    figure: FigureName | None = None
    region: str | None = None
    heads: bool = False
    log: bool = False
    of_layer: int | None = None
    step: int | None = None
    at_row: dict[str, int] = field(default_factory=dict)
    toggled: set[str] = field(default_factory=set)
    over_steps: bool = False
    head: int | None = None
    whole: bool = False
    column: int = 0
    attention: AttentionRequest | None = None
    names: list[str] = field(default_factory=list)
    figures: list[FigureName] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    steps: Sequence[int] = ()
    rows: int = 0
    layers: list[int | None] = field(default_factory=list)
    row_names: list[str] = field(default_factory=list)
    cell_at: Callable[[int, int], tuple[int, int] | None] | None = None
    likeness: tuple[Inspection, object, NDArray[np.float64]] | None = None
    results: tuple[tuple[object, ...], list[AnalysisResult]] | None = None

    @property
    def keys(self) -> str:
        """Which keys the footer names: those that do most on this page."""
        by_page = {"map": "inside", "time": "inside: trees", "model": "inside: trees"}
        return by_page.get(self.page, f"inside: {self.page}")

    # -- what is looked at --------------------------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The row of the cursor, within those that were last drawn."""
        return min(max(self.at_row.get(self._rows_of, 0), 0), max(0, self.rows - 1))

    @property
    def _rows_of(self) -> str:
        """Map and histogram have the same rows; the list of findings has others than the one that is opened."""
        return "map" if self.page == "spread" else "finding" if self.opened else self.page

    @property
    def opened(self) -> bool:
        """Does one finding have the page to itself?"""
        return self.page == "recorded" and self.whole

    def nearest_step(self, steps: Sequence[int]) -> int | None:
        """The one of these steps, in order, at the cursor or the last before it; None where there are none."""
        if not steps:
            return None
        return steps[-1] if self.step is None else steps[max(0, bisect.bisect_right(steps, self.step) - 1)]

    def chosen_figure(self) -> FigureName | None:
        """The figure of the map, among those there are."""
        return self.figure if self.figure in self.figures else _usual(self.figures)

    def chosen_region(self) -> str | None:
        """The region, among those there are; of another group the one of that name: `attn_q`, `attn_q.weight`."""
        stem = (self.region or USUAL_REGION).removesuffix(_WEIGHT)
        for name in (self.region, stem, f"{stem}{_WEIGHT}", USUAL_REGION):
            if name in self.regions:
                return name
        return next(iter(self.regions), None)

    # -- what keys do -------------------------------------------------------------------------------------------

    def turn(self, by: int) -> None:
        """The page before, or the next."""
        self.page = PAGES[(PAGES.index(self.page) + by) % len(PAGES)]

    def open_page(self, number: int) -> None:
        """The n-th page."""
        self.page = PAGES[min(number, len(PAGES)) - 1]

    def move(self, right: int, down: int) -> None:
        """An arrow: another step, another row; of attention another head, another layer."""
        if down:
            self.at_row[self._rows_of] = min(max(self.row + down, 0), max(0, self.rows - 1))
        if right and self.page == "attention":
            self._next_head(right)
        elif right and self.opened:
            self.column = max(0, self.column + right)
        elif right and self.steps:
            now = self.nearest_step(self.steps)
            self._go_to(self.steps.index(now) + right if now is not None else 0)

    def go_to_end(self, end: Literal[0, 1]) -> None:
        """To the first or the last step; of a page without steps, to the first or the last row."""
        if self.steps:
            self._go_to(_FAR if end else 0)
        else:
            self.move(0, _FAR if end else -_FAR)

    def _go_to(self, at: int) -> None:
        last = len(self.steps) - 1
        self.step = None if at >= last else self.steps[max(0, at)]

    def _next_head(self, by: int) -> None:
        answer = None if self.attention is None else self.attention.answer
        heads = 0 if answer is None else answer.heads
        now = -1 if self.head is None else self.head
        at = (now + 1 + by) % (heads + 1) - 1
        self.head = None if at < 0 else at

    def next_figure(self, by: int) -> None:
        """Another figure, of whichever group, on the map."""
        self.page = "map"
        self.figure = _beside(self.figures, self.chosen_figure(), by)

    def next_region(self, by: int) -> None:
        """Another region or tensor."""
        self._keep_layer()
        self.region = _beside(self.regions, self.chosen_region(), by)

    def turn_rows(self) -> None:
        """Heads of the layer at the cursor, or layers; of CKA layers over the steps, or each with each."""
        if self.page == "CKA":
            self.over_steps = not self.over_steps
        else:
            self._keep_layer()
            self.heads = not self.heads
            self.at_row["map"] = 0 if self.heads else self.of_layer or 0

    def _keep_layer(self) -> None:
        """What comes may be about the layer at the cursor."""
        if (
            self.page in _OF_ROWS
            and not self.heads
            and self.row < len(self.layers)
            and (layer := self.layers[self.row]) is not None
        ):
            self.of_layer = layer

    def choose(self, text: str) -> str:
        """Choose figure and region by words of their names; what to say where there is none such."""
        self._keep_layer()
        for word in text.split():
            figures = [name for name in self.figures if word == name[1]]
            figures = figures or [name for name in self.figures if word in name[1] or word == name[0]]
            regions = [name for name in (*self.regions, *self.names) if word in name]
            if figures:
                now = self.chosen_figure()
                self.figure = next((name for name in figures if now is not None and name[0] == now[0]), figures[0])
            elif regions:
                self.region = regions[0]
            else:
                return f"there is no figure and no region {word!r}"
        return ""

    def open(self) -> Literal["", "prompt"]:
        """Open what the cursor is on; what is to be typed for it."""
        if self.page == "attention":
            return "prompt"
        if self.page == "recorded":
            self.whole, self.column, self.at_row["finding"] = not self.whole, 0, 0
        if self.page == "map":
            self.page = "spread"
        elif self.page in ("time", "model"):
            self._toggle_row()
        return ""

    def ask_attention(self, watched: WatchedRun, prompt: str) -> None:
        """Have the attention of the newest checkpoint computed; what was asked before is given up."""
        self.close()
        file = newest_checkpoint(watched)
        if file is not None and prompt:
            self.page, self.attention = "attention", AttentionRequest(file, prompt)

    def asks(self) -> Literal["figure", "prompt"]:
        """What `/` asks for on this page."""
        if self.page == "attention":
            return "prompt"
        self.page = self.page if self.page in (*_OF_ROWS, "CKA") else "map"
        return "figure"

    def point(self, x: int, y: int) -> None:
        """Put the cursor where the mouse was pressed."""
        if self.cell_at is not None and (cell := self.cell_at(x, y)) is not None:
            row, step = cell
            self.at_row[self._rows_of] = row
            if step < len(self.steps):
                self._go_to(step)

    def _toggle_row(self) -> None:
        """Open or shut the part of a tree that the cursor is on."""
        if self.row < len(self.row_names):
            self.toggled ^= {self.row_names[self.row]}

    def read(self) -> bool:
        """Has an answer come that was waited for?"""
        return self.attention is not None and self.attention.has_news()

    def close(self) -> None:
        """End what still computes."""
        if self.attention is not None:
            self.attention.stop()


def _usual(figures: list[FigureName]) -> FigureName | None:
    """The figure that is shown first."""
    firsts = [("taps", "std"), ("grads", "update_ratio"), ("drift", "l2_to_init")]
    return next((name for name in firsts if name in figures), figures[0] if figures else None)


def _beside(names: list[_T], now: _T | None, by: int) -> _T | None:
    if not names:
        return None
    return names[(names.index(now) + by) % len(names)] if now in names else names[0]
