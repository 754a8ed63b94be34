"""Takes the pictures of the board that the documents show, from real runs.

    python docs/captures.py --runs DIR RUN…        # writes docs/captures/*.svg

Textual exports the screen as SVG. Braille is then drawn as dots, since many machines have no font for it.
"""

import argparse
import asyncio
import html
import re
from pathlib import Path

from linnet.board.terminal.app import BoardApp
from linnet.board.terminal.state import Board
from linnet.runs import RunStore

HOME = Path(__file__).parent / "captures"
SHOTS = {  # name: theme, size, keys
    "metrics-dark": ("dark", (132, 38), []),
    "metrics-light": ("light", (132, 38), []),
    "detail-dark": ("dark", (110, 30), ["1", "s", "s", "left", *["left"] * 60]),
    "runs-light": ("light", (132, 16), ["r", "space", "space"]),
    "system-dark": ("dark", (110, 24), ["y"]),
}
_WIDTH, _HEIGHT, _BASE = 12.2, 24.4, 18.5  # of a character, and of its top above the line it stands on
_DOT = 3.7
_BITS = ((0, 0, 0x01), (0, 1, 0x02), (0, 2, 0x04), (1, 0, 0x08), (1, 1, 0x10), (1, 2, 0x20), (0, 3, 0x40), (1, 3, 0x80))
_FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_PARTS = re.compile(r"[\u2801-\u28ff]+|[^\s\u2800-\u28ff]+")
_TEXT = re.compile(r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


async def capture(board: Board, theme: str, size: tuple[int, int], keys: list[str]) -> str:
    """The board after these keys."""
    app = BoardApp(board, theme)
    async with app.run_test(size=size) as pilot:
        await pilot.pause(0.5)
        while not board.watched_runs or not all(watched.caught_up for watched in board.watched_runs):
            await pilot.pause(0.1)
        await pilot.press(*keys)
        await pilot.pause(2.5)  # for the machine's figures and the curves of the table
        return app.export_screenshot(title="linnet board")


def with_dots(svg: str) -> str:
    """Braille as squares; other text word by word, each in its place, in fonts that are everywhere."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: *[^;]*;", f"font-family: {_FONTS};", svg)
    return _TEXT.sub(_drawn, svg)


def _drawn(found: re.Match[str]) -> str:
    look, x, y, _, rest, text = found.groups()
    characters = html.unescape(text)
    left, top = float(x), float(y) - _BASE
    path, words = "", ""
    for part in _PARTS.finditer(characters):
        place = left + part.start() * _WIDTH
        if 0x2800 < ord(part[0][0]) <= 0x28FF:
            for at, code in enumerate(ord(c) - 0x2800 for c in part[0]):
                path += "".join(_square(place + at * _WIDTH, top, c, r) for c, r, bit in _BITS if code & bit)
        else:
            wide = f'x="{place:.1f}" y="{y}" textLength="{len(part[0]) * _WIDTH:.1f}"'
            words += f'<text class="{look}" {wide}{rest}>{html.escape(part[0])}</text>'
    return (f'<path class="{look}" d="{path}"/>' if path else "") + words


def _square(left: float, top: float, column: int, row: int) -> str:
    x = left + _WIDTH * (column + 0.5) / 2 - _DOT / 2
    y = top + _HEIGHT * (row + 0.5) / 4 - _DOT / 2
    return f"M{x:.1f} {y:.1f}h{_DOT}v{_DOT}h-{_DOT}z"


def main() -> None:
    """Take every picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("run", nargs="+")
    chosen = parser.parse_args()
    store = RunStore(chosen.runs)
    HOME.mkdir(exist_ok=True)
    for name, (theme, size, keys) in SHOTS.items():
        wanted = chosen.run if name.startswith(("metrics", "runs")) else chosen.run[:1]
        board = Board(store, [store.find(run).path for run in wanted])
        svg = asyncio.run(capture(board, theme, size, keys))
        (HOME / f"{name}.svg").write_text(with_dots(svg))
        print(f"docs/captures/{name}.svg")


if __name__ == "__main__":
    main()
