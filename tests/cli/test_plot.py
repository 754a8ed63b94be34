"""`linnet plot` as a person uses it: text, SVG and PNG, from run folders on the disk."""

from __future__ import annotations

import math
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from PIL import Image

from linnet.cli.app import main
from tests.board.conftest import END, steps, training, write

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LINNET_RUNS", raising=False)
    root = tmp_path / "runs"
    write(root / "a-1", training(), name="wide", experiment="width", created_at=1_780_000_000.0)
    write(root / "a-2", training(0.1), name="narrow", experiment="width", created_at=1_780_000_100.0)
    return root


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["plot", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def svg_texts(path: Path) -> set[str]:
    return {"".join(element.itertext()) for element in ElementTree.parse(path).iter(f"{SVG}text")}


def test_without_words_training_and_held_out_loss_of_the_newest_run_on_one_chart(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    assert out.startswith("narrow\nloss by step\n")
    assert " A loss " in out and " B validation/loss " in out and "◆ best" in out
    assert any(0x2800 < ord(character) <= 0x28FF for character in out)
    assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_metrics_then_runs_as_an_svg(root: Path, capsys: pytest.CaptureFixture[str], theme: str) -> None:
    code, out, _ = run(capsys, "loss,validation/loss", "wide", "narrow", "--out", "loss.svg", "--theme", theme)
    assert code == 0 and out.startswith("loss.svg  ")
    assert {"wide", "narrow", "loss", "validation/loss", "step", "width"} <= svg_texts(Path("loss.svg"))
    tree = ElementTree.parse("loss.svg").getroot()
    assert tree.get("viewBox") == "0 0 720 440"
    ground = tree.find(f"{SVG}rect")
    assert ground is not None and ground.get("fill") == {"light": "#ffffff", "dark": "#10141a"}[theme]


def test_a_png_of_the_size_that_is_asked_for(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "loss", "wide", "--out", "LOSS.PNG", "--width", "500", "--height", "300", "--scale", "1")[0] == 0
    picture = Image.open("LOSS.PNG")
    assert picture.size == (500, 300)
    assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 50


def test_a_png_says_which_text_no_font_here_has(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from linnet.board.figure import fonts

    monkeypatch.setattr(fonts, "_files", tuple)  # only Pillow's own, which has Latin letters
    fonts._choose.cache_clear()
    title = "ความสูญเสีย \x1b[31m"
    code, out, err = run(capsys, "loss", "wide", "--out", "loss.png", "--title", title)
    fonts._choose.cache_clear()
    assert code == 0 and out.startswith("loss.png  ")
    assert err.count("\n") == 1 and "\x1b" not in err
    assert "no font here has all characters of 'ความสูญเสีย" in err and "--out FILE.svg" in err
    assert run(capsys, "loss", "wide", "--out", "loss.svg", "--title", "ความสูญเสีย")[2] == ""
    assert "ความสูญเสีย" in svg_texts(Path("loss.svg"))
    assert run(capsys, "loss", "wide", "--out", "loss.png", "--title", "greater")[2] == ""


def test_svg_into_a_pipe(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "loss", "--out", "-")
    assert (code, err) == (0, "") and ElementTree.fromstring(out).tag == f"{SVG}svg"


def test_the_same_command_writes_the_same_bytes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        for suffix in ("svg", "png"):
            assert run(capsys, "loss", "wide", "narrow", "--out", f"{name}.{suffix}")[0] == 0
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()
    assert Path("a.png").read_bytes() == Path("b.png").read_bytes()


@pytest.mark.parametrize("axis", ["step", "tokens", "epoch", "time", "wall-time"])
def test_each_axis_in_text_and_in_a_picture(root: Path, capsys: pytest.CaptureFixture[str], axis: str) -> None:
    code, out, err = run(capsys, "--axis", axis)
    assert (code, err) == (0, "")
    assert {"time": "time (min)", "wall-time": "by time"}.get(axis, f"by {axis}") in out
    assert run(capsys, "--axis", axis, "--out", "x.svg")[0] == 0
    assert "validation/loss" in svg_texts(Path("x.svg"))


def test_patterns_name_several_metrics(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "valid*,l?", "--smooth", "heavy", "--log", "--clip", "--title", "My figure")
    assert code == 0 and out.startswith("My figure\n")
    assert "A validation/loss" in out and "B lr" in out


def test_ranges_show_a_part(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "loss", "--out", "x.svg", "--x-range", "100:200", "--y-range", ":4")[0] == 0
    shown = svg_texts(Path("x.svg"))
    assert {"100", "200"} <= shown and not {"0", "300", "400"} & shown


def test_names_come_as_plain_text_to_a_terminal_and_a_picture(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root / "b-1", [*steps(20), END], name="\x1b[31mred\x1b[0m <b>&", created_at=1_790_000_000.0)
    code, out, _ = run(capsys)
    assert code == 0 and "\x1b" not in out and "␛[31mred" in out
    assert run(capsys, "--out", "x.svg")[0] == 0
    assert "␛[31mred␛[0m <b>&" in svg_texts(Path("x.svg"))


def test_what_cannot_be_drawn_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root / "c-1", [*steps(20, loss=lambda s: 3.0 - s / 5), END], name="below", created_at=1_790_000_000.0)
    code, out, err = run(capsys, "loss,validation/loss", "below", "wide", "--log")
    assert code == 0 and "wide   validation/loss" in out
    assert "below is without validation/loss: no such metric" in err
    assert "6 values ≤ 0 are not on a log scale" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["losss"], "did you mean loss"),
        (["latest"], "metrics come first, with commas between, then runs"),
        (["loss", "nobody"], "no run 'nobody'"),
        ([","], "no metric is named"),
        (["--out", "loss.pdf"], "--out loss.pdf: expected a name that ends in .svg or .png"),
        (["--smooth", "2"], "--smooth '2': off, light, medium, heavy"),
        (["--x-range", "5"], "--x-range '5': expected LOW:HIGH"),
        (["--y-range", "4:2"], "--y-range '4:2': expected LOW:HIGH"),
        (["--log", "--y-range", "0:2"], "a log scale begins above 0"),
        (["--width", "5", "--out", "x.svg"], "--width 5: from 240 to 10,000 pixels"),
        (["--width", "5"], "--width 5: from 40 to 1,000 characters"),
        (["--scale", "99", "--out", "x.png"], "--scale 99: from 0.5 to 8"),
        (["--x-range", "9000:", "--out", "x.svg"], "nothing to draw: loss, validation/loss has no finite value"),
    ],
)
def test_mistakes_are_explained_in_a_line(
    root: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert code in (1, 2) and out == ""
    assert message in err and err.count("\n") == 1
    assert not list(Path().glob("x.*"))


def test_a_run_without_any_number_is_told(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root / "d-1", [{"kind": "run_start", "schema": "toy/v1", "t": 0.0}], created_at=1_790_000_000.0)
    assert run(capsys)[::2] == (1, "linnet: run d-1 has no metrics yet\n")
    write(root / "d-2", steps(9, loss=lambda s: math.nan), created_at=1_791_000_000.0)
    assert run(capsys)[::2] == (1, "linnet: nothing to draw: loss has no finite value in this range\n")


def test_no_epochs_no_axis(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root / "d-2", steps(9), created_at=1_791_000_000.0)
    code, _, err = run(capsys, "--axis", "epoch")
    assert code == 1 and "these runs log no epoch to draw loss by" in err


def test_without_pillow_one_line_says_what_to_install(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == "PIL" or name.startswith("PIL.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "PIL", None)
    code, _, err = run(capsys, "--out", "x.png")
    assert (
        code == 1
        and err == "linnet: plot needs the package PIL, which is not installed: pip install 'linnet[vision]'\n"
    )
    assert run(capsys, "--out", "x.svg")[0] == 0


def test_a_folder_that_cannot_be_written_to_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--out", "nowhere/x.svg")
    assert code == 1 and err.count("\n") == 1 and "nowhere" in err
    Path("full.svg").mkdir()
    code, _, err = run(capsys, "--out", "full.svg")
    assert code == 1 and "full.svg" in err
    assert [path.name for path in Path().iterdir()] == ["runs", "full.svg"] or not list(Path().glob(".*partial"))


def test_a_picture_is_replaced_whole(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.svg").write_text("before")
    assert run(capsys, "--out", "x.svg")[0] == 0
    ElementTree.parse("x.svg")


def test_many_quantities_make_the_picture_higher(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "loss,lr,grad_norm,validation/loss", "--out", "x.svg")[0] == 0
    assert ElementTree.parse("x.svg").getroot().get("height") == "800"
    code, _, err = run(capsys, "loss,lr,grad_norm", "--out", "y.svg", "--height", "200")
    assert code == 2 and "3 quantities, each with a panel of its own: give --height from 340" in err
    write(root / "z", steps(5, **{f"m{number}": float for number in range(80)}), created_at=1_799_000_000.0)
    code, _, err = run(capsys, "m*", "--out", "y.svg")
    assert code == 2 and "80 quantities" in err and not Path("y.svg").exists()
    assert run(capsys, "m1*")[0] == 0


def test_runs_by_pattern_and_by_filter(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(root / "b-1", [*steps(20), END], name="other", created_at=1_770_000_000.0)
    code, out, _ = run(capsys, "loss", "a-*")
    assert code == 0 and "wide    loss" in out and "narrow  loss" in out
    code, out, _ = run(capsys, "loss", "--experiment", "width", "--where", "loss<9")
    assert code == 0 and out.startswith("width\n") and "wide    loss" in out and "other" not in out
