"""`LineChart`: what is to be drawn of some runs: which metrics, in which panels, colours and dashes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from linnet.board.curve import Curve, logarithms
from linnet.board.figure.colours import DASHES, slots
from linnet.board.figure.scales import Scale, time_unit, with_room
from linnet.board.plot import Range, range_of
from linnet.board.words import plain
from linnet.runs import Metrics, Run
from linnet.runs.metric_names import quantity_of

_KINDS = {"wall time": "clock", "relative time": "time", "step": "count", "tokens": "count"}  # of the x axis
_NEAR_ZERO = 0.05  # of the axis: one that would begin so near to 0 begins there
OpenRange = tuple[float | None, float | None]  # an end that is None is where the data ends


@dataclass(frozen=True)
class Source:
    """A run and its numbers, to be drawn."""

    run: Run
    metrics: Metrics

    @property
    def title(self) -> str:
        return plain(self.run.manifest.name or self.run.id)


@dataclass(frozen=True)
class ChartLine:
    """One metric of one run. `label`: what is written at its end; `colour`, `dash`: which of those there are."""

    curve: Curve
    source: Source
    run: str
    metric: str
    label: str
    colour: int
    dash: int


@dataclass(frozen=True)
class Panel:
    """Lines that share a y axis."""

    label: str
    lines: list[ChartLine]


@dataclass(frozen=True)
class ChartOptions:
    """How a chart is drawn, whatever is in it.

    - `axis`: what stands on the x axis, one of `curve.AXES`.
    - `alpha`: how much a new value weighs in the smoothed line; 1 for none.
    - `clip`: leave out the one in a hundred that is farthest off.
    """

    axis: str = "step"
    log: bool = False
    log_x: bool = False
    alpha: float = 1.0
    clip: bool = False
    x_range: OpenRange = (None, None)
    y_range: OpenRange = (None, None)


@dataclass(frozen=True)
class LineChart:
    """Panels one below the other over one x axis.

    `metric_dashes`: the metrics that are told apart by dashes, where colours tell the runs.
    """

    panels: list[Panel]
    title: str
    options: ChartOptions
    metric_dashes: list[tuple[str, int]] = field(default_factory=list)

    @cached_property
    def x_scale(self) -> Scale:
        """Over all panels."""
        lines = [line for panel in self.panels for line in panel.lines]
        spans = [span for line in lines if (span := _x_span(line.curve, self.options)) is not None]
        low, high = min(low for low, _ in spans), max(high for _, high in spans)
        kind = _KINDS.get(self.options.axis, "number")
        if self.options.log_x:
            low, high = float(np.log10(low)), float(np.log10(high))
        elif 0 < low < _NEAR_ZERO * high:
            low = 0.0
        return Scale(*_opened((low, high), self.options.x_range, self.options.log_x), self.options.log_x, kind)

    def y_scale(self, panel: Panel) -> Scale:
        """Of what the x axis shows of it."""
        options, x = self.options, self.x_scale
        window = (10**x.low * (1 - 1e-12), 10**x.high * (1 + 1e-12)) if x.log else (x.low, x.high)
        curves = [logarithms(line.curve) if options.log else line.curve for line in panel.lines]
        ranges = range_of(curves, window, options.clip) or range_of(curves)
        assert ranges is not None  # `build_chart` leaves out lines without any value
        up = _opened(with_room(ranges[1]), options.y_range, options.log)
        return Scale(up[0], up[1], options.log)

    @property
    def x_label(self) -> str:
        """What the x axis counts, with its unit."""
        axis = self.options.axis
        if axis == "relative time":
            return f"time ({'s' if self.x_scale.log else time_unit(self.x_scale.high)[0]})"
        return "time" if axis == "wall time" else axis

    def left_out(self) -> int:
        """Values that a log scale cannot show."""
        lines = [line for panel in self.panels for line in panel.lines]
        return sum(int(np.count_nonzero(line.curve.low <= 0)) for line in lines) if self.options.log else 0


def build_chart(
    sources: Sequence[Source], metrics: Sequence[str], options: ChartOptions, title: str | None = None
) -> LineChart:
    """The metrics of some runs, those of one quantity in one panel. Lines that have no value to draw are left out.

    Of one run each metric has a colour; of several, each run, and dashes tell the metrics apart.
    """
    several = len(sources) > 1
    colours = slots([source.run.id for source in sources])
    titles = _distinct_titles(sources)
    panels: dict[str, list[str]] = {}
    for metric in dict.fromkeys(metrics):
        panels.setdefault(quantity_of(metric), []).append(metric)
    most = max(map(len, panels.values()))
    drawn: list[Panel] = []
    for members in panels.values():
        lines = []
        for order, metric in enumerate(members):
            for at, source in enumerate(sources):
                curve = placed_curve(source, metric, options.axis)
                if curve is None or _x_span(curve, options) is None:
                    continue
                colour = colours[at] if several else order % 8
                dash = order if several and most > 1 else at // 8 if several else order // 8
                label = titles[at] if several else plain(metric)
                lines.append(ChartLine(curve, source, titles[at], metric, label, colour, dash % len(DASHES)))
        if lines:
            drawn.append(Panel(_panel_label(members), lines))
    shared = [members for members in panels.values() if len(members) > 1]
    dashes = [(metric, order % len(DASHES)) for members in shared for order, metric in enumerate(members)]
    heading = _title(sources, titles) if title is None else title
    return LineChart(drawn, heading, options, dashes if several and most > 1 else [])


def placed_curve(source: Source, metric: str, axis: str) -> Curve | None:
    """A metric on an x axis; None where the run has no such metric, or does not tell that axis."""
    series = source.metrics.get(metric)
    if series is None:
        return None
    tokens = source.metrics.get("tokens") if axis == "tokens" else None
    epochs = source.metrics.main if axis == "epoch" else None
    return Curve.of(series).on_axis(
        axis,
        source.run.manifest.created_at,
        None if tokens is None else Curve.of(tokens),
        None if epochs is None else Curve.of(epochs),
    )


def _x_span(curve: Curve, options: ChartOptions) -> Range | None:
    """Least and greatest x of what can be drawn of a curve; None where nothing can."""
    inside = np.isfinite(curve.mean) & np.isfinite(curve.x)
    if options.log:
        inside &= curve.high > 0
    if options.log_x:
        inside &= curve.x > 0
    low, high = options.x_range
    inside &= (curve.x >= (-np.inf if low is None else low)) & (curve.x <= (np.inf if high is None else high))
    x = curve.x[inside]
    return (float(x.min()), float(x.max())) if len(x) else None


def _opened(span: Range, asked: OpenRange, log: bool) -> Range:
    """A range with the ends that were asked for instead of its own."""
    low, high = (end if wanted is None else _counted(wanted, log) for end, wanted in zip(span, asked, strict=True))
    if high > low:
        return low, high
    room = abs(low) * 0.05 or 0.5
    return low - room, high + room


def _counted(value: float, log: bool) -> float:
    return float(np.log10(value)) if log else value


def _distinct_titles(sources: Sequence[Source]) -> list[str]:
    """Names of runs; those that several have, with the id."""
    titles = [source.title for source in sources]
    return [
        title if titles.count(title) == 1 else f"{title} ({plain(source.run.id)})"
        for title, source in zip(titles, sources, strict=True)
    ]


def _panel_label(metrics: list[str]) -> str:
    return plain(metrics[0]) if len(metrics) == 1 else quantity_of(metrics[0])


def _title(sources: Sequence[Source], titles: list[str]) -> str:
    """One run's name; of several, their experiment, if it is the same."""
    if len(sources) == 1:
        return titles[0]
    experiments = {source.run.manifest.experiment for source in sources}
    return plain(experiments.pop() or "") if len(experiments) == 1 else ""
