"""Whatever stops a writer, the name means the old file or the new one, whole."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from linnet.files import STAGED_SUFFIX, StagedFile, sweep
from linnet.gguf import GGUFError, GGUFFile, point_link, resolve_link, write_step
from tests.gguf import tiny


def params(step: int) -> dict[str, np.ndarray]:
    cfg = tiny.llama_config()
    return {name: np.full(value.shape, step, np.float32) for name, value in tiny.llama(cfg)[1].items()}


def test_fifty_kills_leave_latest_whole(tmp_path: Path) -> None:
    script = Path(__file__).with_name("killed_writer.py")
    done = subprocess.run([sys.executable, script, tmp_path / "weights", "50"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(seen) == 51
    assert all(each["whole"] for each in seen)
    assert sum(each["partial"] for each in seen) > 5  # it was indeed killed in the middle of writing
    assert all(each["partial"] <= 1 for each in seen)  # and each writer cleared the last one's leavings away
    assert seen[-1] == {"step": 9, "whole": True, "partial": 0}


def test_full_disk_keeps_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cfg = tiny.llama_config()
    write_step(cfg, params(1), tmp_path, "run", 1)
    real, left = os.write, 100_000

    def filling(fd: int, data: memoryview) -> int:
        nonlocal left
        if left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(fd, data[:left])
        left -= done
        return done

    monkeypatch.setattr(os, "write", filling)
    with pytest.raises(GGUFError, match=r"step_2\.gguf: file: cannot be written; .*No space left on device"):
        write_step(cfg, params(2), tmp_path, "run", 2)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step_1.gguf"]
    assert resolve_link(tmp_path / "latest").name == "step_1.gguf"


def test_file_size_limit_of_the_system_keeps_the_last_checkpoint(tmp_path: Path) -> None:
    """The kernel itself stops the write half way: the nearest to a full disk that needs no disk."""
    code = f"""
import resource, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.gguf.killed_writer import CFG, params, observe
from pathlib import Path
from linnet.gguf import GGUFError, write_step
weights = Path({str(tmp_path)!r})
write_step(CFG, params(1), weights, "run", 1)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    write_step(CFG, params(2), weights, "run", 2)
except GGUFError as error:
    print(error)
assert observe(weights) == {{"step": 1, "whole": True, "partial": 0}}, observe(weights)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "File too large" in done.stdout


def test_error_in_the_middle_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), StagedFile(path) as out:
        out.write(b"half of it")
        raise KeyboardInterrupt
    assert [each.name for each in tmp_path.iterdir()] == ["model.gguf"]
    assert path.read_bytes() == b"old"


def test_leftovers_are_cleared_but_not_a_living_writers_file(tmp_path: Path) -> None:
    left = tmp_path / f".step_3.gguf.0123{STAGED_SUFFIX}"
    left.write_bytes(b"half")
    with StagedFile(tmp_path / "step_4.gguf") as out:
        out.write(b"new")
        assert not left.exists()
        assert sweep(tmp_path) == []  # the other writer's file is locked
        assert out.staged.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["step_4.gguf"]


def test_reader_of_the_old_file_keeps_it_while_it_is_replaced(tmp_path: Path) -> None:
    cfg = tiny.llama_config()
    path = write_step(cfg, params(1), tmp_path, "run", 1)
    with GGUFFile.open(path) as file:
        view = file.tensors["output_norm.weight"].array()
        write_step(cfg, params(7), tmp_path, "run", 1)
        assert (view == 1).all()
        assert (file.tensors["token_embd.weight"].read() == 1).all()


def test_latest_is_a_relative_link_that_survives_a_move(tmp_path: Path) -> None:
    weights = tmp_path / "runs" / "a" / "weights"
    write_step(tiny.llama_config(), params(1), weights, "a", 1)
    write_step(tiny.llama_config(), params(2), weights, "a", 2)
    assert (weights / "latest").readlink() == Path("step_2.gguf")
    moved = tmp_path / "elsewhere"
    weights.rename(moved)
    assert resolve_link(moved / "latest") == (moved / "step_2.gguf").resolve()


def test_where_links_are_impossible_a_text_file_holds_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: str) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    path = write_step(tiny.llama_config(), params(1), tmp_path, "run", 1)
    assert (tmp_path / "latest").read_text() == "step_1.gguf\n"
    assert not (tmp_path / "latest").is_symlink()
    assert resolve_link(tmp_path / "latest") == path
    write_step(tiny.llama_config(), params(2), tmp_path, "run", 2)
    assert resolve_link(tmp_path / "latest").name == "step_2.gguf"


def test_resolve_link_takes_a_file_as_itself_and_says_what_leads_nowhere(tmp_path: Path) -> None:
    path = write_step(tiny.llama_config(), params(1), tmp_path, "run", 1)
    assert resolve_link(path) == path
    path.unlink()
    with pytest.raises(GGUFError, match=r"latest: link: does not lead to a file; .*step_1\.gguf"):
        resolve_link(tmp_path / "latest")
    with pytest.raises(GGUFError, match="found nothing"):
        resolve_link(tmp_path / "best")
    with pytest.raises(GGUFError, match="points within its folder"):
        point_link(tmp_path / "latest", "../step_1.gguf")


def test_unwritable_target_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    with pytest.raises(GGUFError, match=r"taken.*cannot be written to"):
        write_step(tiny.llama_config(), params(1), tmp_path / "taken" / "weights", "run", 1)
    (tmp_path / "step_1.gguf").mkdir()
    with pytest.raises(GGUFError, match="found a folder"):
        write_step(tiny.llama_config(), params(1), tmp_path, "run", 1)
