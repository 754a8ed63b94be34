"""Takes the pictures of the board in the browser that the documents show, from real runs, by a real Chromium.

    python docs/captures_web.py                # trains seven small runs; one is inspected, the last is still live
    python docs/captures_web.py --runs DIR     # of these runs instead; the newest are shown
    python docs/captures_web.py --only report  # no others, by the names of SHOTS

They are written to docs/captures/web-*.png. `make test` installs what this needs.
"""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import sync_playwright

from linnet.runs import RunStore
from linnet.runs.summary import summarize

HOME = Path(__file__).parent / "captures"
WIDE, PHONE = (1440, 900), (390, 844)
CHARTS = "#/charts?runs=RUNS", "[data-key=loss] .chart-surface[data-drawn]"
REPORT = "report"  # the one page that is a file
# name: address, with RUNS and RUN for those shown, SEEN for one that was looked into; what must stand there before
SHOTS = {
    "runs": ("#/runs?columns=optimizer,lr,d_model,n_layers", ".spark path"),
    "charts": CHARTS,
    "run": ("#/run/RUN/charts", "[data-key=loss] .chart-surface[data-drawn]"),
    "config": ("#/run/RUN/config", "main table, main dl"),
    "model": ("#/run/RUN/flow", ".flow svg"),
    "compare": ("#/compare?runs=RUNS", "[aria-label='Settings of each run']"),
    "samples": ("#/samples?runs=RUNS", "main"),
    "checkpoints": ("#/checkpoints?runs=RUN", "main table, main li"),
    "machine": ("#/machine?runs=RUN", "main .chart-surface"),
    "inside": ("#/run/SEEN/inside", ".heat image"),
    "attention": (
        "#/run/SEEN/inside?see=attention&prompt=def%20main(self):%0A%20%20%20%20return%20self.name&layer=3",
        ".heat image",
    ),
    "likeness": ("#/run/SEEN/inside?see=alike&between=steps", ".heat image"),
    REPORT: CHARTS,
}
VIEWS = {"light": ("light", WIDE), "dark": ("dark", WIDE), "phone": ("light", PHONE)}
_LIVE_STEPS = 1500  # that the last run has logged when the pictures are taken
_PATIENCE = 300_000  # milliseconds until what must stand on a page does: attention is computed first
_EXACT_COLOURS = 144  # of the 256 of a picture
_SETTLED = 1500  # milliseconds for curves of the list, fonts and the end of every movement


def train(folder: Path) -> tuple[Path, subprocess.Popen[bytes]]:
    """A grid of rates and optimizers on some Python; the last run trains on."""
    corpus, runs = folder / "corpus", folder / "ablations" / "runs"
    command = [sys.executable, "-m", "linnet", "train", "from-scratch"]
    for package in ("json", "email", "logging", "asyncio"):
        shutil.copytree(Path(sysconfig.get_path("stdlib")) / package, corpus / package)
    flags = ["--corpus", "corpus", "--runs", str(runs), "--preset", "tiny", "--vocab", "512", "--batch", "8"]
    flags += ["--eval-every", "50", "--eval-tokens", "4096", "--sample-every", "200", "--prompt", "def "]
    inside = ["--name", "inside", "--n-layers", "8", "--d-model", "96", "--d-ff", "256", "--steps", "400"]
    looked_into = [*command, *flags, *inside, "--inspect", "all@10"]
    subprocess.run(looked_into, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    grid = [(optimizer, rate) for optimizer in ("adamw", "muon") for rate in ("1e-3", "4e-3", "1e-2")]
    for optimizer, rate in grid:
        last = (optimizer, rate) == grid[-1]
        about = ["--name", f"{optimizer}-{rate}", "--optimizer", optimizer, "--lr", rate, "--experiment", "lr-grid"]
        about += ["--steps", "4000" if last else "800"]
        trainer = subprocess.Popen([*command, *flags, *about], cwd=folder, stdout=subprocess.DEVNULL)
        if not last:
            trainer.wait()
    while trainer.poll() is None and _last_step(runs) < _LIVE_STEPS:
        time.sleep(1.0)
    return runs, trainer


def _last_step(root: Path) -> int:
    newest = RunStore(root).latest()
    summary = summarize(newest.path) if newest is not None else None
    return (summary.step or 0) if summary is not None else 0


@contextmanager
def served(root: Path) -> Iterator[str]:
    """The address of a board on these runs."""
    command = [sys.executable, "-m", "linnet", "board", "--web", "--no-open", "--port", "0", "--runs", str(root)]
    home = {"HOME": str(root.parents[1])}  # the page shows the folder as ~/ablations/runs
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **home})
    assert server.stdout is not None
    address = re.search(r"http://\S+", server.stdout.readline())
    assert address is not None
    try:
        yield address[0]
    finally:
        server.terminate()
        server.wait()


def take(root: Path, names: Sequence[str] = tuple(SHOTS), most: int = 5) -> None:
    """Take the pictures of these names."""
    summaries = sorted(RunStore(root).list(), key=lambda summary: summary.manifest.created_at, reverse=True)
    ids = [summary.run_id for summary in summaries[:most]]
    seen = next((one.run_id for one in summaries if one.manifest.config.get("inspect")), ids[0])
    HOME.mkdir(exist_ok=True)
    with served(root) as address, report_of(root, ids) as report, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"))
        for view, (theme, (width, height)) in VIEWS.items():
            context = browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme="dark" if theme == "dark" else "light",
                has_touch=view == "phone",
                device_scale_factor=1 if view != "phone" else 2,
            )
            page = context.new_page()
            for name in names:
                view_address, stands = SHOTS[name]
                page.goto("about:blank")
                home = report if name == REPORT else address
                page.goto(home + shown_at(view_address, ids, seen))
                page.wait_for_selector(stands, state="attached", timeout=_PATIENCE)
                page.wait_for_timeout(_SETTLED)
                if name == "charts" and view != "phone":
                    box = page.locator("[data-key=loss] .chart-surface").bounding_box()
                    assert box is not None
                    page.mouse.move(box["x"] + box["width"] * 0.62, box["y"] + box["height"] * 0.5)
                    page.wait_for_timeout(200)
                save(page.screenshot(), HOME / f"web-{name}-{view}.png")
            context.close()
        browser.close()


def shown_at(address: str, ids: Sequence[str], seen: str) -> str:
    """An address with the runs that it shows."""
    return address.replace("RUNS", ",".join(ids)).replace("RUN", ids[0]).replace("SEEN", seen)


@contextmanager
def report_of(root: Path, ids: Sequence[str]) -> Iterator[str]:
    """The address of a report of these runs: one file, opened from the disk."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        about = ["--runs", str(root), "--out", str(file), "--title", "Learning rates of two optimizers"]
        command = [sys.executable, "-m", "linnet", "report", *ids, *about]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield file.as_uri()


def save(png: bytes, path: Path) -> None:
    """In 256 colours, a third of the bytes. The most frequent stay as they are: surfaces and thin lines."""
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    colours, at, counts = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
    by_count = np.argsort(-counts, kind="stable")
    exact, others = colours[by_count[:_EXACT_COLOURS]], colours[by_count[_EXACT_COLOURS:]]
    palette = np.concatenate([exact, _fewer(others, 256 - len(exact))])
    nearest = [((palette.astype(int) - colour) ** 2).sum(axis=1).argmin() for colour in colours.astype(int)]
    picture = Image.fromarray(np.array(nearest, np.uint8)[at.reshape(-1)].reshape(pixels.shape[:2]))
    picture.putpalette(palette.tobytes())
    picture.save(path, optimize=True)
    print(f"docs/captures/{path.name}  {path.stat().st_size // 1000} kB")


def _fewer(colours: NDArray[np.uint8], most: int) -> NDArray[np.uint8]:
    """So many colours at most that are near to all of these."""
    if len(colours) <= most:
        return colours
    row = Image.fromarray(colours.reshape(1, -1, 3)).quantize(most, Image.Quantize.MEDIANCUT, kmeans=2)
    return np.array(row.getpalette()[: 3 * most], np.uint8).reshape(-1, 3)


def main() -> None:
    """Train, unless there are runs, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--only", choices=SHOTS, nargs="+", default=tuple(SHOTS), metavar="NAME")
    chosen = parser.parse_args()
    if chosen.runs is not None:
        take(chosen.runs, chosen.only)
        return
    with tempfile.TemporaryDirectory(prefix="linnet-") as folder:
        root, trainer = train(Path(folder))
        try:
            take(root, chosen.only)
        finally:
            trainer.terminate()
            trainer.wait()


if __name__ == "__main__":
    main()
