"""What the commands that look into models share: where a picture goes, and that a run may keep it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from linnet.board.figure.colours import THEMES, ThemeName
from linnet.cli.pictures import format_of, print_chart, text_size, write_picture
from linnet.cli.printing import theme_of_terminal

if TYPE_CHECKING:
    from pathlib import Path

    from linnet.analysis.checkpoint import Checkpoint
    from linnet.board.figure.heat_map import HeatMap
    from linnet.board.figure.scatter import Scatter
    from linnet.board.figure.scene import Scene
    from linnet.board.plot import Line
    from linnet.models.model_name import Which

Record = Annotated[bool, Parameter(help="Keep it in the model's run: a note, a picture, and figures as evaluations.")]
Out = Annotated[
    str | None,
    Parameter(help="The picture to write, .svg or .png, or - for SVG into a pipe.", allow_leading_hyphen=True),
]
Theme = Annotated[ThemeName | None, Parameter(help="light or dark; by default light, and in a terminal as it is.")]
_PICTURE = (720.0, 440.0)
_ROW, _AROUND = 17.0, 130.0  # pixels of a row of a heat map, and of what is above and below it
_MOST_HEIGHT = 1600.0
_SCALE = 2.0


def find_checkpoint(model: str, runs: Path | None, *, recordable: bool, of_run: Which = "best") -> Checkpoint:
    """The checkpoint that a MODEL means. `recordable`: refused where no run could keep what will be found."""
    from linnet.analysis.checkpoint import Checkpoint
    from linnet.analysis.record import require_recordable

    checkpoint = Checkpoint.find(model, runs, of_run=of_run)
    if recordable:
        require_recordable(checkpoint)
    return checkpoint


def record_finding(
    checkpoint: Checkpoint,
    name: str,
    note: str,
    picture: HeatMap | Scatter,
    numbers: Mapping[str, object],
    evaluations: Sequence[Mapping[str, object]] = (),
) -> None:
    """Keep a finding in the run of its checkpoint, with its picture in light colours."""
    from linnet.analysis.record import record

    record(checkpoint, name, note, scene_of(picture, "light"), numbers, evaluations)


def picture_or_text(shown: HeatMap | Scatter, out: str | None, theme: ThemeName | None, *, lines: int = 24) -> None:
    """Draw a map or a chart where it is wanted: in the terminal, or as a picture."""
    if format_of(out) != "text":
        write_picture(scene_of(shown, theme or "light"), out or "-", _SCALE)
        return
    width, height = text_size(None, None)
    drawn = theme or theme_of_terminal()
    print_chart(text_of(shown, width, min(height, lines), drawn), drawn)


def text_of(shown: HeatMap | Scatter, width: int, height: int, theme: ThemeName) -> list[Line]:
    """A map or a chart in text."""
    from linnet.board.figure.heat_map import HeatMap

    if isinstance(shown, HeatMap):
        from linnet.board.figure.text_heat_map import heat_lines

        return heat_lines(shown, width, THEMES[theme])
    from linnet.board.figure.text_scatter import scatter_lines

    return scatter_lines(shown, width, height)


def scene_of(shown: HeatMap | Scatter, theme: ThemeName) -> Scene:
    """A map or a chart as a picture."""
    from linnet.board.figure.heat_map import HeatMap

    if isinstance(shown, HeatMap):
        from linnet.board.figure.heat_map_scene import draw_heat_map

        height = min(_MOST_HEIGHT, max(200.0, _AROUND + _ROW * len(shown.rows)))
        return draw_heat_map(shown, _PICTURE[0], height, THEMES[theme])
    from linnet.board.figure.scatter_scene import draw_scatter

    return draw_scatter(shown, *_PICTURE, THEMES[theme])
