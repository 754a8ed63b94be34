"""What new users stumbled over when they tried Linnet: each of it is met no more."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import linnet
from linnet.board import words
from linnet.cli import main
from linnet.cli.demo import demo
from linnet.cli.streams import complain, draw_over
from linnet.train.images import ImageEvaluation
from tests.conftest import SMALL, Printed, Said

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


def test_rates_that_follow_another_stand_behind_what_somebody_chose(root: Path, printed: Printed) -> None:
    for number, (lr, decay) in enumerate(((1e-3, 0.1), (3e-3, 0.1), (3e-3, 1.0))):
        config = {"lr": lr, "lr_embedding": lr / 3, "lr_own": number, "decay": decay, "seed": number}
        with linnet.start(run_id=f"run-{number}", config=config) as run:
            run.log(1, loss=1.0)
    head = printed("runs", "--columns", "loss").splitlines()[0].split()
    assert head == ["run", "loss", "lr", "lr_own", "decay", "seed", "lr_embedding"]


def test_a_dry_run_has_its_plan_before_the_steps_on_trial(small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    before: list[str] = []

    def trial(*_: object) -> list[float]:
        before.append(out.getvalue())
        return [0.5]

    monkeypatch.setattr("linnet.recipes.dry_run._trial", trial)
    assert main([*small, "--steps", "4", "--dry-run"]) == 0
    assert before[0].startswith("plan  ") and "time  " not in before[0]
    last = out.getvalue().splitlines()[-1]
    assert last.startswith("time  about ") and "500 ms a step" in last


def test_a_dry_run_names_what_it_left_out(
    corpus: Path, tmp_path: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.recipes.dry_run._trial", lambda *_: [0.5])
    folder = tmp_path / "books"
    shutil.copytree(corpus, folder)
    (folder / "scan.png").write_bytes(b"\x89PNG\0")
    command = ("train", "from-scratch", "--corpus", str(folder), *SMALL, "--steps", "4", "--dry-run")
    remark, plan, *_ = printed(*command).splitlines()
    assert remark == "1 file left out: scan.png: not text: NUL bytes"
    assert plan.startswith("plan  ")
    assert json.loads(printed(*command, "--json"))["left_out"] == ["scan.png: not text: NUL bytes"]


def test_a_dry_run_names_images_that_are_broken(
    tmp_path: Path, printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.recipes.dry_run._trial", lambda *_: [0.5])
    for label in "ab":
        (tmp_path / "photos" / label).mkdir(parents=True)
        for number in range(12):
            picture = Image.new("RGB", (8, 8), (20 * number, 0, 255 * (label == "b")))
            picture.save(tmp_path / "photos" / label / f"{number}.png")
    (tmp_path / "photos" / "a" / "torn.png").write_bytes(b"\x89PNG\0")
    said = printed("train", "vit-tiny", "--images", str(tmp_path / "photos"), "--steps", "4", "--dry-run")
    assert "1 file left out:" in said and "torn.png" in said


def test_passes_over_a_small_text_are_counted_in_the_plan(
    small: list[str], printed: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.recipes.dry_run._trial", lambda *_: [0.5])
    many = " ".join(printed(*small, "--epochs", "3", "--dry-run").split())
    assert re.search(r"· \S+ tokens, 3 epochs of \S+ ·? ?", many)
    few = " ".join(printed(*small, "--epochs", "0.5", "--dry-run").split())
    assert re.search(r"· \S+ of \S+ tokens, 0\.5 epochs", few)


def test_an_error_takes_the_place_of_unfinished_progress(capsys: pytest.CaptureFixture[str]) -> None:
    draw_over("preparing  37%", sys.stdout)
    complain("there is no text")
    assert capsys.readouterr() == ("\r\x1b[Kpreparing  37%\r\x1b[K", "linnet: there is no text\n")
    draw_over("preparing 100%", sys.stdout, end="\n")
    complain("there is no text")
    assert capsys.readouterr().out == "\r\x1b[Kpreparing 100%\n"  # which stands


def test_long_names_of_models_leave_room_for_their_sizes(
    root: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("a-folder-of-models-with-a-name-that-tells-all-there-is-to-tell")
    folder.mkdir()
    (folder / "model-of-mine.gguf").write_bytes(b"GGUF" + bytes(1996))
    head, row = terminal(80, "models")
    assert head.split()[:3] == ["model", "about", "size"]
    assert "model-of-mine.gguf  cannot be read  2.0 kB" in row and row.startswith("…")


def test_the_list_of_models_has_room_for_their_files(
    root: Path, terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("runs-of-last-year") / "llama-20260531-001" / "weights"
    folder.mkdir(parents=True)
    (folder / "step_100.gguf").write_bytes(b"GGUF" + bytes(1996))
    head, row = terminal(80, "models")
    assert head.split() == ["model", "about", "size", "from", "file"]
    assert len(row) <= 80 and row.endswith("/step_100.gguf")
    head, row, notice = terminal(50, "models")
    assert "file" not in head.split() and notice == "no room for their files (--json has them)"
    assert "step_100.gguf" in row


def test_what_compare_leaves_out_is_shown_by_what_it_names(root: Path, terminal: Terminal) -> None:
    for number in range(4):
        config = {f"a_long_name_of_a_setting_{k}": number for k in range(4)}
        with linnet.start(run_id=f"llama-20260531-00{number}", config=config, system_every=0) as run:
            run.log(1, loss=1.0)
    said = " ".join(terminal(80, "compare", "llama-*"))
    assert "no room for" in said and "(a wider terminal shows more; --json all)" in said


def test_what_is_no_model_is_refused_by_its_type() -> None:
    wrong: object = 5
    with pytest.raises(linnet.LinnetError, match=r"a model is named by a GGUF's path, a run or 'RUN@best': found int"):
        linnet.load(wrong)  # type: ignore[arg-type]


def test_tail_folds_events_between_figures(root: Path, terminal: Terminal) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=1.0, lr=1e-3, grad_norm=0.5, tokens=256, wall_us=2683, tokens_per_s=95_455)
    saved = {"kind": "checkpoint", "t": 1.0, "step": 1, "path": "weights/step_1.gguf", "sha256": "0" * 64}
    with (root / "a" / "events.jsonl").open("a") as file:
        file.write(json.dumps({**saved, "train_loss": 1 / 3}) + "\n")
    lines = terminal(60, "tail", "a", "-n", "3")
    assert max(map(len, lines)) < 60
    assert not any(line.endswith(("tokens", "wall_us", "lr")) for line in lines)
    assert "000000" not in "".join(lines) and "train_loss 0.3333" in " ".join(lines)


def test_a_reason_to_leave_a_file_out_is_told_to_its_end(tmp_path: Path, terminal: Terminal) -> None:
    (tmp_path / "a.txt").write_text("a whale, and the sea\n" * 20)
    (tmp_path / "table.csv").write_text("number,title,a body of text\n1,2,3\n")
    lines = terminal(60, "data", "show", str(tmp_path), "--lines", "0")
    assert "see --field" in " ".join(lines[-3:])
    assert max(map(len, lines[-3:])) < 60


@pytest.mark.parametrize("columns", [80, 200])
def test_the_demo_suggests_commands_in_lines_of_the_terminal(
    columns: int, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("linnet.cli.app._run", lambda words: demo() if words == ["demo"] else 0)  # nothing is trained
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    lines = terminal(columns, "demo")
    told = [line for line in lines if not line.startswith("$ ")]  # those are to be copied whole
    assert max(map(len, told)) <= columns
    assert sum(line.lstrip().startswith("#") for line in told) == (6 if columns == 80 else 0)


@pytest.mark.parametrize("others", [0, 3])
def test_losses_of_different_vocabularies_have_no_winner(root: Path, printed: Printed, others: int) -> None:
    for number, vocab in enumerate((256, 2048, *[2048] * others)):
        model = {"vocab": vocab}
        with linnet.start(run_id=f"run-{number}", arch="llama", model=model) as run:
            run.log(1, {"loss": 2.0 + number, "validation/bits_per_byte": 3.0 - number / 10})
    shown = printed("compare", "run-*")
    assert "compare bits_per_byte, not loss or ppl" in shown
    assert "2*" not in shown and re.search(r"2\.[0-9]+\*", shown)
    assert "vocabularies" not in printed("compare", "run-1", "run-1")


def test_the_demo_says_how_to_find_linnet_where_the_shell_does_not(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("linnet.cli.app._run", lambda words: demo() if words == ["demo"] else 0)
    (tmp_path / "venv/bin").mkdir(parents=True)
    (tmp_path / "venv/bin/activate").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "venv"))
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert any(line.startswith("  source venv/bin/activate") for line in terminal(200, "demo"))
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    assert not any("activate" in line for line in terminal(200, "demo"))
