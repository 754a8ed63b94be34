"""What a run kept, read back: which of it counts, whether it is sound, and files and events that lie."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import linnet
from linnet.runs import ArtifactError, examine
from tests.runs.conftest import logged


def test_what_a_resumed_run_logs_again_is_void(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in (5, 10, 15):
            run.text(step, "x", f"first {step}")
    with linnet.start(resume="a", from_step=7, system_every=0) as run:
        run.text(10, "x", "second 10")
    opened = linnet.open("a")
    assert [artifact.load() for artifact in opened.artifacts()] == ["first 5", "second 10"]
    assert len(opened.artifacts(superseded=True)) == 4
    assert [artifact.label for artifact in opened.artifacts("x", 10)] == ["x@10"]
    assert opened.artifacts("x", media="image") == []


def test_a_file_that_was_logged_again_under_its_name_is_listed_once(root: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    with linnet.start(run_id="a", system_every=0) as run:
        for step in (1, 2):
            plot.write_text(f"<svg>{step}</svg>")
            run.artifact(plot, step=step)
    opened = linnet.open("a")
    (artifact,) = opened.artifacts()
    assert (artifact.step, artifact.media, artifact.read()) == (2, "image", b"<svg>2</svg>")
    assert examine(opened).sound


def test_check_finds_a_changed_and_a_missing_file(root: Path) -> None:
    artifacts = logged(
        lambda run: (run.text(1, "a", "one"), run.text(1, "b", "two"), run.image(1, "c", np.zeros((4, 4), np.uint8)))
    )
    first, second, third = artifacts
    first.path.write_text("ONE")
    second.path.unlink()
    third.path.write_bytes(third.read() + b"x")
    (third.path.parent / ".x.png.0011.linnet-partial").write_bytes(b"")
    findings = examine(linnet.open("a"))
    assert len(findings.faults) == 2
    assert any("its SHA-256 differs" in fault for fault in findings.faults)
    assert any(f"has {third.size + 1} bytes" in fault for fault in findings.faults if third.size)
    assert any("is no longer there" in remark for remark in findings.remarks)
    assert any("linnet-partial is left over" in remark for remark in findings.remarks)
    assert first.problem() and second.problem() and third.problem()
    with pytest.raises(ArtifactError, match="is no longer there"):
        second.read()


@pytest.mark.parametrize(
    "path", ["../../../etc/passwd", "/etc/passwd", "artifacts/../../x", "\0", "", 5, None, "artifacts/fifo"]
)
def test_an_event_cannot_name_a_file_outside_the_run_nor_make_a_reader_wait(root: Path, path: Any) -> None:
    run = linnet.Run.create(root)
    (run.path / "artifacts").mkdir()
    os.mkfifo(run.path / "artifacts" / "fifo")
    run.append_event({"kind": "artifact", "name": "x", "media": "image", "path": path, "bytes": "many", "sha256": 3})
    for artifact in run.artifacts():
        assert path == "artifacts/fifo"
        assert artifact.problem() == "cannot be read"
        with pytest.raises(ArtifactError, match="cannot be read"):
            artifact.load()


@pytest.mark.parametrize("media", ["image", "table", "histogram", "audio", "text", "nonsense"])
def test_a_damaged_file_is_an_error_in_one_line(root: Path, media: str) -> None:
    run = linnet.Run.create(root)
    (run.path / "artifacts").mkdir()
    (run.path / "artifacts" / "x").write_bytes(b'{"counts": [1], "edges": [[]]} \xff')
    run.append_event({"kind": "artifact", "name": "x", "media": media, "path": "artifacts/x"})
    (artifact,) = run.artifacts()
    if media in ("text", "nonsense"):
        assert artifact.load()
    else:
        with pytest.raises(ArtifactError) as error:
            artifact.load()
        assert "\n" not in str(error.value)


def test_artifacts_are_found_in_a_long_stream_without_decoding_it(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        for step in range(30_000):
            run.log(step, loss=1.0)
            if step % 10_000 == 0:
                run.text(step, 'a "artifact" name', f"{step}")
        run.note('this "artifact" is none')
    began = time.perf_counter()
    assert [artifact.load() for artifact in linnet.open("a").artifacts()] == ["0", "10000", "20000"]
    assert time.perf_counter() - began < 0.5
