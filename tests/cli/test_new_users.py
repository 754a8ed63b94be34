"""What new users stumbled over when they tried Linnet: each of it is met no more."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import linnet
from linnet.board import words
from linnet.train.images import ImageEvaluation
from tests.conftest import Printed, Said

Terminal = Callable[..., list[str]]


def test_a_long_setting_of_one_run_leaves_room_for_the_other(root: Path, terminal: Terminal) -> None:
    for name, taken in (("wide", "layers 0, 29 of 30, " * 8), ("llama-20260531-002", "embedding 576 wide, " * 8)):
        with linnet.start(
            run_id=name, config={"taken": taken, "corpus": f"/home/me/projects/texts/english/{name}.txt"}
        ) as run:
            run.log(1, loss=1.0)
    lines = terminal(80, "compare", "wide", "llama-20260531-002")
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["setting", "wide", "llama-20260531-002"]
    assert "embedding 576 wide" in next(line for line in lines if line.startswith("config.taken"))
    assert "002.txt" in next(line for line in lines if line.startswith("config.corpus"))  # the ends differ


def test_four_runs_that_do_not_fit_beside_each_other_stand_below_each_other(root: Path, terminal: Terminal) -> None:
    for number in range(4):
        with linnet.start(run_id=f"llama-20260531-00{number}", config={"lr": number}) as run:
            run.log(1, {"loss": 1.0, "validation/bits_per_byte": 1.0})
    assert terminal(160, "compare", "llama-*")[0].startswith("setting")
    assert terminal(80, "compare", "llama-*")[0].startswith("run ")


def test_the_whole_held_out_score_names_the_shorter_one_of_the_training(
    small: list[str], printed: Printed, said: Said
) -> None:
    flags = ["64" if word == "2048" else word for word in small]  # of --eval-tokens
    printed(*flags, "--held-out", "0.2", "--steps", "3", "--run-id", "a")
    last = linnet.open("a").metrics()["validation/loss"].value[-1]
    whole = json.loads(printed("eval", "a", "--json"))
    assert whole["in_training"] == {"loss": pytest.approx(last), "tokens": 64}
    assert f"{last:.6g}, over the first 64 of these tokens" in printed("eval", "a")
    assert json.loads(printed("eval", "a", "--tokens", "64", "--json"))["loss"] == pytest.approx(last)
    assert "in training" not in printed("eval", "a", "--tokens", "64")


def test_too_few_held_out_tokens_are_told_of(tmp_path: Path, printed: Printed) -> None:
    (tmp_path / "short.txt").write_text("".join(f"line {n} of a short text\n" for n in range(400)))
    flags = ["train", "from-scratch", "--preset", "tiny", "--vocab", "300", "--corpus", str(tmp_path / "short.txt")]
    out = printed(*flags, "--steps", "2", "--run-id", "a")
    assert "tokens are held out, and their loss says little: --held-out 0.1 keeps more of them" in out
    assert "are held out" not in printed(*flags, "--steps", "2", "--eval-every", "0")


def test_show_says_how_large_a_model_is(small: list[str], printed: Printed) -> None:
    printed(*small, "--steps", "1", "--run-id", "a", "--group", "seeds")
    shown = printed("show", "a")
    assert "  parameters  107k (24.6k embedding)" in shown
    assert "  group       seeds" in shown


def test_a_reason_to_leave_a_file_out_names_the_flag_in_lines_of_the_terminal(
    tmp_path: Path, printed: Printed, terminal: Terminal
) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.txt").write_text("".join(f"whale {n}, and the sea\n" for n in range(200)))
    (folder / "b.jsonl").write_text("".join(f'{{"content": "{n}"}}\n' for n in range(9)))
    lines = terminal(60, "data", "prepare", str(folder), "--vocab", "280")
    assert "see --field" in " ".join(lines)
    assert "`" not in " ".join(lines)
    assert all(len(line) <= 60 or "/" in line for line in lines)  # a path stays whole, to be copied
    assert (
        "see --field" in json.loads(printed("data", "prepare", str(folder), "--vocab", "280", "--json"))["left_out"][0]
    )


def test_scratch_says_which_warm_start_it_can_be_compared_with(small: list[str], printed: Printed) -> None:
    printed(*small, "--steps", "1", "--run-id", "donor")
    flags = ["train", "warm-start", *small[2:4], "--donor", "donor", "--steps", "1", "--eval-every", "0"]
    assert "to compare with these, give --untied" in printed(*flags, "--init", "scratch")
    assert "give --untied" not in printed(*flags, "--init", "scratch", "--untied")


def test_a_classifier_that_has_hardly_learned_is_told_of(printed: Printed) -> None:
    flags = ["--d-model", "32", "--n-heads", "2", "--d-ff", "64", "--n-layers", "1", "--batch", "8"]
    out = printed("train", "vit-tiny", *flags, "--steps", "1", "--lr", "1e-6", "--run-id", "a")
    assert "it has hardly learned yet; train longer: linnet resume a --steps 10" in out

    def evaluation(confusion: list[list[int]]) -> ImageEvaluation:
        counts_KK = np.array(confusion)
        right, total = np.trace(counts_KK), counts_KK.sum()
        return ImageEvaluation(1.0, right / total, 1.0, int(total), counts_KK, ())

    assert evaluation([[60, 0], [40, 0]]).hardly_better == pytest.approx(0.6)
    assert evaluation([[55, 5], [5, 35]]).hardly_better is None


def test_the_demo_without_torch_announces_nothing(said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("linnet.cli.demo.find_spec", lambda package: None)
    code, out, err = said("demo")
    assert (code, out) == (1, "")
    assert err == "linnet: demo needs the package torch, which is not installed: pip install 'linnet[train]'\n"
    assert not list(tmp_path.iterdir())


def test_names_of_wide_letters_stand_in_line(root: Path, terminal: Terminal, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("größe/鲸🐋", "plain"):
        with linnet.start(run_id=name, config={"word": f"鲸 {name}"}) as run:
            run.log(1, {name: 1.0, "loss": 0.5})
            run.table(1, "鲸", [{"a": 1}])
    shown = terminal(80, "show", "plain")
    assert any("1 row × 1," in line for line in shown)
    table = terminal(80, "runs", "--columns", "loss,word")
    assert len({words.cells(line[: line.index("0.5")]) for line in table[1:]}) == 1
    assert words.shorten("鲸鲸鲸鲸", 5) == "鲸鲸…"
    linnet.start(run_id="鲸").finish()
    assert "has no letter that a folder's name may have" in caplog.text
    assert "is taken" not in caplog.text
