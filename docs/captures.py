"""Takes the pictures of the board that the documents show, from real runs.

    python docs/captures.py                    # trains four small runs; the last is still live
    python docs/captures.py --runs DIR RUN…    # of these runs instead

They are written to docs/captures/*.svg.

Textual exports the screen as SVG. Braille is then drawn as dots, since many machines have no font for it.
"""

import argparse
import asyncio
import html
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import numpy as np

from linnet.board.terminal.app import BoardApp
from linnet.board.terminal.state import Board
from linnet.cli.app import main as linnet
from linnet.runs import RunStore, start
from linnet.runs.summary import summarize

HOME = Path(__file__).parent / "captures"
SHOTS = {  # name: theme, size, keys
    "metrics-dark": ("dark", (132, 38), []),
    "metrics-light": ("light", (132, 38), []),
    "detail-dark": ("dark", (110, 30), ["1", "s", "s", "left", *["left"] * 60]),
    "runs-light": ("light", (132, 16), ["r", "space", "space"]),
    "system-dark": ("dark", (110, 24), ["y"]),
    "inside-dark": ("dark", (110, 30), ["I", "down", "down", *["left"] * 5]),
    "artifacts-dark": ("dark", (110, 30), ["i", "down"]),
}
TRAINED = {"gentle": "1e-3", "usual": "4e-3", "bold": "2e-2", "longer": "4e-3"}  # the name of a run: its learning rate
OVERLAID = ["longer", "gentle", "bold"]
_LIVE_STEPS = 1000  # that the last run has logged when the pictures are taken
_WIDTH, _HEIGHT, _BASE = 12.2, 24.4, 18.5  # of a character, and of its top above the line it stands on
_DOT = 3.7
_BITS = ((0, 0, 0x01), (0, 1, 0x02), (0, 2, 0x04), (1, 0, 0x08), (1, 1, 0x10), (1, 2, 0x20), (0, 3, 0x40), (1, 3, 0x80))
_FONTS = "ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace"
_PARTS = re.compile(r"[\u2801-\u28ff]+|▀+|[^\s\u2800-\u28ff▀]+")
_TEXT = re.compile(r'<text class="([^"]*)" x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>([^<]*)</text>')


def train(folder: Path) -> subprocess.Popen[bytes]:
    """Three runs of 600 steps and one of 6,000 on some Python; the last one trains on."""
    corpus = folder / "corpus"
    for package in ("json", "email", "logging"):
        shutil.copytree(Path(sysconfig.get_path("stdlib")) / package, corpus / package)
    flags = ["--corpus", str(corpus), "--runs", str(folder / "runs"), "--preset", "tiny", "--vocab", "384"]
    flags += ["--batch", "4", "--eval-every", "50", "--eval-tokens", "2048", "--experiment", "learning rate"]
    for name, rate in TRAINED.items():
        last = name == [*TRAINED][-1]
        about = [
            "--name",
            name,
            "--lr",
            rate,
            "--steps",
            "6000" if last else "600",
            "--tag",
            "tiny",
            "--tag",
            f"lr{rate}",
            *(["--inspect", "taps,grads,drift"] if last else []),
        ]
        trainer = subprocess.Popen(
            [sys.executable, "-m", "linnet", "train", "from-scratch", *flags, *about], stdout=subprocess.DEVNULL
        )
        if not last:
            trainer.wait()
    while trainer.poll() is None and _steps(folder / "runs", name) < _LIVE_STEPS:
        time.sleep(1.0)
    return trainer


def _steps(root: Path, name: str) -> int:
    summaries = [summary for folder in RunStore(root).folders() if (summary := summarize(folder)) is not None]
    return max((summary.step or 0 for summary in summaries if summary.manifest.name == name), default=0)


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
    """Braille as squares, half blocks as halves; other text word by word, in fonts that are everywhere."""
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    svg = re.sub(r"font-family: *[^;]*;", f"font-family: {_FONTS};", svg)
    return _TEXT.sub(_drawn, svg)


def _drawn(element: re.Match[str]) -> str:
    look, x, y, _, rest, text = element.groups()
    characters = html.unescape(text)
    left, top = float(x), float(y) - _BASE
    path, words = "", ""
    for part in _PARTS.finditer(characters):
        begin = left + part.start() * _WIDTH
        if 0x2800 < ord(part[0][0]) <= 0x28FF:
            for at, code in enumerate(ord(c) - 0x2800 for c in part[0]):
                path += "".join(_square(begin + at * _WIDTH, top, c, r) for c, r, bit in _BITS if code & bit)
        elif part[0][0] == "▀":
            path += f"M{begin:.1f} {top:.1f}h{len(part[0]) * _WIDTH:.1f}v{_HEIGHT / 2}h-{len(part[0]) * _WIDTH:.1f}z"
        else:
            wide = f'x="{begin:.1f}" y="{y}" textLength="{len(part[0]) * _WIDTH:.1f}"'
            words += f'<text class="{look}" {wide}{rest}>{html.escape(part[0])}</text>'
    return (f'<path class="{look}" d="{path}"/>' if path else "") + words


def _square(left: float, top: float, column: int, row: int) -> str:
    x = left + _WIDTH * (column + 0.5) / 2 - _DOT / 2
    y = top + _HEIGHT * (row + 0.5) / 4 - _DOT / 2
    return f"M{x:.1f} {y:.1f}h{_DOT}v{_DOT}h-{_DOT}z"


def log_digits(root: Path) -> str:
    """A run that has logged images, a table and histograms of scikit-learn's digits; its id."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    generator = np.random.default_rng(1)
    with start(root, run_id="digits", name="digits", arch="mlp", system_every=0) as run:
        for step in range(100, 501, 100):
            noise = generator.normal(0, 1200 / step, (24, 8, 8))
            run.log(step, loss=120 / step)
            run.image(
                step, "decoded", images[:24].reshape(24, 1, 8, 8) + noise[:, None], columns=6, value_range=(0, 16)
            )
            run.histogram(step, "weights/encoder", generator.normal(0, step / 500, 5000))
        first = images[:24].reshape(24, 1, 8, 8)
        run.image(500, "originals", first, columns=6, value_range=(0, 16), caption="what they should be")
        rows = [{"digit": int(label), "mean": float(image.mean())} for image, label in zip(images, labels, strict=True)]
        run.table(500, "means", rows[:40])
        run.text(500, "remark", "The encoder is half as wide as before.")
    return run.run_id


def take(store: RunStore, runs: list[str]) -> None:
    """Take every picture."""
    HOME.mkdir(exist_ok=True)
    for name, (theme, size, keys) in SHOTS.items():
        if name.startswith("artifacts"):
            take_artifacts(name, theme, size, keys)
            continue
        shown = runs if name.startswith(("metrics", "runs")) else runs[:1]
        board = Board(store, [store.find(run).path for run in shown])
        svg = asyncio.run(capture(board, theme, size, keys))
        (HOME / f"{name}.svg").write_text(with_dots(svg))
        print(f"docs/captures/{name}.svg")
    plot(store, runs)


def take_artifacts(name: str, theme: str, size: tuple[int, int], keys: list[str]) -> None:
    """The picture of the tab that shows images."""
    with tempfile.TemporaryDirectory() as folder:
        run = log_digits(Path(folder))
        board = Board(RunStore(Path(folder)), [Path(folder) / run])
        (HOME / f"{name}.svg").write_text(with_dots(asyncio.run(capture(board, theme, size, keys))))
        print(f"docs/captures/{name}.svg")


def plot(store: RunStore, runs: list[str]) -> None:
    """The pictures that `linnet plot` makes."""
    for theme in ("light", "dark"):
        words = ["plot", "loss,validation/loss", *runs, "--smooth", "heavy", "--log", "--theme", theme]
        linnet([*words, "--runs", str(store.root), "--out", str(HOME / f"plot-{theme}.svg")])
    words = ["plot", "loss,validation/loss", *runs, "--against", "lr", "--take", "600", "--runs", str(store.root)]
    linnet([*words, "--out", str(HOME / "scatter-light.svg")])


def main() -> None:
    """Train where no runs are named, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("run", nargs="*")
    chosen = parser.parse_args()
    if chosen.run:
        take(RunStore(chosen.runs), chosen.run)
        return
    with tempfile.TemporaryDirectory() as folder:
        trainer = train(Path(folder))
        try:
            take(RunStore(Path(folder) / "runs"), OVERLAID)
        finally:
            trainer.terminate()
            trainer.wait()


if __name__ == "__main__":
    main()
