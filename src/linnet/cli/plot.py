"""`linnet plot`: charts of runs, in the terminal or as a picture."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from linnet.board import words
from linnet.board.curve import SMOOTHING
from linnet.cli.options import EVERY_RUN, RunFilters, RunNames, RunsFolder, choose_runs, open_store, require_metrics
from linnet.cli.pictures import format_of, picture_size, print_chart, remark, text_size, write_picture
from linnet.cli.printing import theme_of_terminal
from linnet.errors import LinnetError, UsageError
from linnet.runs.metric_names import main_metrics

if TYPE_CHECKING:
    from linnet.board.figure.chart import LineChart, OpenRange, Source
    from linnet.runs import RunStore

Axis = Literal["step", "tokens", "epoch", "time", "wall-time"]
_AXES = {"time": "relative time", "wall-time": "wall time"}
_MOST_REMARKS = 4


def plot(
    metrics: Annotated[
        str | None, Parameter(help="Metrics, or patterns, with commas between; by default loss and held-out loss.")
    ] = None,
    /,
    *run: RunNames,
    out: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    axis: Axis = "step",
    against: str | None = None,
    by: str | None = None,
    take: str = "last",
    log: bool = False,
    log_x: Annotated[bool | None, Parameter(negative="--no-log-x")] = None,
    smooth: str = "off",
    clip: bool = False,
    x_range: str | None = None,
    y_range: str | None = None,
    title: str | None = None,
    theme: Literal["light", "dark"] | None = None,
    width: int | None = None,
    height: int | None = None,
    scale: float = 2.0,
    filters: RunFilters = EVERY_RUN,
    runs: RunsFolder = None,
) -> int:
    """Draw metrics of runs: in the terminal, or as an SVG or PNG picture.

    Args:
        out: The picture to write, .svg or .png, or - for SVG into a pipe; without it the chart is drawn as text.
        axis: What stands on the x axis.
        against: A setting (lr, d_model …): draw the metric of each run, by default of all, against it.
        by: With --against: a colour and a line for each value of this setting.
        take: With --against: the value that is drawn: last, best, first, min, max, or a step.
        log: Log scale of the y axis.
        log_x: Log scale of the x axis; with --against also by itself, where the settings span decades.
        smooth: off, light, medium, heavy, or the weight of a new value: above 0, at most 1.
        clip: Leave the one value in a hundred that is farthest off out of the y axis' range.
        x_range: The x axis from LOW:HIGH; either may be left out, as in 100: or :5000.
        y_range: The y axis, in the same way.
        title: Above the chart; by default the run's name, of several their experiment. '' for none.
        theme: light or dark; by default light, and in a terminal as it is.
        width: Of the picture in pixels (720), or of the text in characters.
        height: Of the picture in pixels (440), or of the text in lines.
        scale: Pixels of a PNG for each of its width and height (2).
    """
    from linnet.board.figure.chart import ChartOptions, build_chart
    from linnet.board.figure.colours import THEMES

    kind = format_of(out)
    size = text_size(width, height) if kind == "text" else picture_size(width, height, scale)
    x_ends, y_ends = _range("--x-range", x_range, bool(log_x)), _range("--y-range", y_range, log)
    store = open_store(runs)
    if against is not None:
        from linnet.cli.scatter import choose_scatter, print_left_out

        scatter = choose_scatter(store, metrics, run, filters, against, by, take, log, log_x, y_ends, title)
        if kind == "text":
            from linnet.board.figure.text_scatter import scatter_lines

            print_chart(scatter_lines(scatter, *size), theme or theme_of_terminal())
        else:
            from linnet.board.figure.scatter_scene import draw_scatter

            write_picture(draw_scatter(scatter, *size, THEMES[theme or "light"]), out or "-", scale)
        print_left_out(scatter)
        return 0
    if by is not None or take != "last":
        raise UsageError(f"--{'by' if by is not None else 'take'} goes with --against KEY, the setting to draw against")
    options = ChartOptions(_AXES.get(axis, axis), log, bool(log_x), _alpha(smooth), clip, x_ends, y_ends)
    sources = _sources(store, run if run or filters else ("latest",), filters)
    names = _metric_names(metrics, sources)
    chart = build_chart(sources, names, options, title)
    if not chart.panels:
        raise LinnetError(_why_empty(sources, names, axis, log or bool(log_x)))
    if kind == "text":
        from linnet.board.figure.text_chart import text_lines

        print_chart(text_lines(chart, *size), theme or theme_of_terminal())
    else:
        from linnet.board.figure.line_scene import draw_lines

        size = picture_size(width, height, scale, len(chart.panels))
        write_picture(draw_lines(chart, *size, THEMES[theme or "light"]), out or "-", scale)
    _print_left_out(chart, sources, names, axis)
    return 0


def _sources(store: RunStore, references: Sequence[str], filters: RunFilters) -> list[Source]:
    """The runs with their numbers, each once."""
    from linnet.board.figure.chart import Source

    return [Source(run, run.metrics()) for run in choose_runs(store, references, filters)]


def _metric_names(asked: str | None, sources: Sequence[Source]) -> list[str]:
    """The metrics that are asked for; without any, the main ones of the runs."""
    known = list(dict.fromkeys(name for source in sources for name in source.metrics.names()))
    whose = f"run {sources[0].run.id} has" if len(sources) == 1 else "these runs have"
    if asked is None:
        names = dict.fromkeys(name for source in sources for name in main_metrics(source.metrics.names()))
        if not names:
            raise LinnetError(f"{whose} no metrics yet")
        return list(names)
    wanted = [word.strip() for word in asked.split(",") if word.strip()]
    if not wanted:
        raise UsageError("no metric is named: `linnet plot loss,validation/loss`, or none for the loss")
    names = {}
    for word in wanted:
        matches = [] if word in known else [name for name in known if fnmatch.fnmatchcase(name, word)]
        if not matches:
            _require_metric(word, known, whose)
        names |= dict.fromkeys(matches or [word])
    return list(names)


def _require_metric(word: str, known: list[str], whose: str) -> None:
    try:
        require_metrics([word], known, whose)
    except UsageError as error:
        order = "metrics come first, with commas between, then runs: `linnet plot loss,lr RUN RUN`"
        raise UsageError(f"{error} ({order})") from None


def _alpha(text: str) -> float:
    levels = dict(SMOOTHING)
    if text in levels:
        return levels[text]
    try:
        alpha = float(text)
    except ValueError:
        alpha = math.nan
    if not 0 < alpha <= 1:
        raise UsageError(f"--smooth {text!r}: {', '.join(levels)}, or a number above 0 and at most 1")
    return alpha


def _range(flag: str, text: str | None, log: bool) -> OpenRange:
    """`LOW:HIGH` as numbers; an end that is left out is where the data ends."""
    if text is None:
        return None, None
    low, colon, high = text.partition(":")
    try:
        ends = tuple(float(end) if end.strip() else None for end in (low, high))
    except ValueError:
        ends = (math.nan, None)
    known = [end for end in ends if end is not None]
    if not colon or not known or not all(map(math.isfinite, known)) or (len(known) == 2 and known[0] >= known[1]):
        raise UsageError(f"{flag} {text!r}: expected LOW:HIGH, as in 0:5000, 100: or :3.5")
    if log and min(known) <= 0:
        raise UsageError(f"{flag} {text!r}: a log scale begins above 0")
    return ends[0], ends[1]


def _why_empty(sources: Sequence[Source], names: list[str], axis: Axis, log: bool) -> str:
    from linnet.board.figure.chart import placed_curve

    shown = words.plain(", ".join(names))
    curves = [placed_curve(source, name, _AXES.get(axis, axis)) for source in sources for name in names]
    if all(curve is None for curve in curves):
        return f"these runs log no {axis} to draw {shown} by; `linnet plot` without --axis draws it by step"
    if log:
        return f"nothing to draw: {shown} has no value above 0 for a log scale, or none in this range"
    return f"nothing to draw: {shown} has no finite value in this range"


def _print_left_out(chart: LineChart, sources: Sequence[Source], names: list[str], axis: Axis) -> None:
    """What was asked for and is not in the chart."""
    drawn = {(id(line.source), line.metric) for panel in chart.panels for line in panel.lines}
    missing = [(source, name) for source in sources for name in names if (id(source), name) not in drawn]
    for source, name in missing[:_MOST_REMARKS]:
        why = "no finite value to draw" if name in source.metrics else "no such metric"
        if name in source.metrics and axis in ("tokens", "epoch"):
            why = f"no {axis}, or no finite value to draw"
        remark(f"{source.title} is without {words.plain(name)}: {why}")
    if len(missing) > _MOST_REMARKS:
        remark(f"and {len(missing) - _MOST_REMARKS} more lines that have nothing to draw")
    if left_out := chart.left_out():
        remark(f"{left_out:,} values ≤ 0 are not on a log scale")
