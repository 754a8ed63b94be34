"""What a run takes on the disk, and which of its checkpoints could go."""

from __future__ import annotations

from pathlib import Path

import pytest

import linnet
from linnet.errors import UsageError
from linnet.files import point_link
from linnet.runs import Run, RunStore
from linnet.runs.usage import Keep, bytes_of, surplus_of

STEPS = (100, 200, 300, 400, 500)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Five checkpoints, the best of them in the middle, the newest with a state."""
    with linnet.start(tmp_path, run_id="a", system_every=0) as session:
        for step in STEPS:
            file = session.weights_dir / f"step_{step}.gguf"
            file.write_bytes(b"w" * step)
            session.checkpoint(file, step)
        (session.run_dir / "state").mkdir()
        (session.run_dir / "state" / "step_500.safetensors").write_bytes(b"s" * 50)
        point_link(session.weights_dir / "best", "step_300.gguf")
        point_link(session.weights_dir / "latest", "step_500.gguf")
        (session.run_dir / "artifacts").mkdir()
        (session.run_dir / "artifacts" / "picture").write_bytes(b"p" * 7)
        (session.run_dir / "mine.txt").write_bytes(b"m" * 3)
    return RunStore(tmp_path).find("a")


def test_bytes_by_part(run: Run) -> None:
    parts = bytes_of(run.path)
    links = sum((run.path / "weights" / name).lstat().st_size for name in ("best", "latest"))
    assert parts["weights"] == sum(STEPS) + links
    assert (parts["state"], parts["artifacts"]) == (50, 7)
    assert parts["events"] == (run.path / "events.jsonl").stat().st_size
    assert parts["other"] == (run.path / "run.json").stat().st_size + 3


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        ("best,latest", {300, 500}),
        ("latest", {500}),
        ("best", {300}),
        ("best,latest,every=200", {200, 300, 400, 500}),
        ("last=2", {400, 500}),
        ("last=9", set(STEPS)),
        ("100, 200", {100, 200}),
        ("every=1000", set()),
    ],
)
def test_what_stays(run: Run, keep: str, kept: set[int]) -> None:
    surplus = surplus_of(run, Keep.parse(keep))
    assert set(STEPS) - set(surplus.steps) == kept
    assert surplus.bytes == sum(set(STEPS) - kept) + (50 if 500 not in kept else 0)
    assert surplus.can_resume == (500 in kept)
    links = {path.name for path in surplus.files} & {"best", "latest"}
    assert links == ({"best"} if 300 not in kept else set()) | ({"latest"} if 500 not in kept else set())


def test_files_that_the_run_did_not_write_stay(run: Run) -> None:
    weights = run.path / "weights"
    (weights / "step_150.gguf").write_bytes(b"another's")
    (weights / "step_200.gguf").write_bytes(b"changed since")
    (weights / "step_400.gguf").unlink()
    (weights / "step_400.gguf").symlink_to(weights / "step_500.gguf")
    surplus = surplus_of(run, Keep.parse("latest"))
    assert (surplus.steps, surplus.foreign) == ([100, 300], [150, 200, 400])


def test_weights_that_lie_elsewhere_are_left_alone(run: Run, tmp_path: Path) -> None:
    (run.path / "weights").rename(tmp_path / "elsewhere")
    (run.path / "weights").symlink_to(tmp_path / "elsewhere")
    assert surplus_of(run, Keep.parse("latest")).files == []


@pytest.mark.parametrize("text", ["", " , ", "bestest", "every", "every=0", "every=-1", "last=x", "1e3", "²"])
def test_what_cannot_be_understood_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="`keep`"):
        Keep.parse(text)
