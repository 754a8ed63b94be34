"""The floor: a name means the old file or the new one, whole; a lock tells who lives; a checkpoint's name its step."""

from __future__ import annotations

import errno
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linnet import files
from linnet.files import FileError, StagedFile


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_file_reaches_the_disk_before_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def recorded_fsync(fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        happened.append("sync folder" if path == tmp_path else "sync file" if files.is_staged(path.name) else str(path))
        fsync(fd)

    def recorded_replace(self: Path, target: Path) -> Path:
        happened.append(f"rename to {target.name}")
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "replace", recorded_replace)
    files.write_file(tmp_path / "run.json", b"{}")
    assert happened == ["sync file", "rename to run.json", "sync folder"]
    assert (tmp_path / "run.json").read_bytes() == b"{}"
    assert names(tmp_path) == ["run.json"]


def test_what_can_be_made_again_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("it was synced"))
    files.write_file(tmp_path / "hashes.json", b"{}", sync=False)
    assert names(tmp_path) == ["hashes.json"]


@pytest.mark.parametrize(
    ("umask", "mode", "expected"), [(0o022, 0o666, 0o644), (0o002, 0o644, 0o644), (0o077, 0o666, 0o600)]
)
def test_permissions_are_those_asked_for_less_the_umask(tmp_path: Path, umask: int, mode: int, expected: int) -> None:
    before = os.umask(umask)
    try:
        files.write_file(tmp_path / "a", b"x", mode=mode)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == expected


def test_a_folder_that_cannot_be_synced_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fsync = os.fsync

    def refuse(number: int) -> None:
        def sync(fd: int) -> None:
            if Path(f"/proc/self/fd/{fd}").readlink() == tmp_path:
                raise OSError(number, os.strerror(number))
            fsync(fd)

        monkeypatch.setattr(os, "fsync", sync)

    refuse(errno.EINVAL)  # a file system that has no such call
    files.write_file(tmp_path / "a", b"x")
    refuse(errno.EIO)  # a disk that is broken
    with pytest.raises(FileError, match="Input/output error"):
        files.write_file(tmp_path / "a", b"y")


def test_an_error_says_the_file_what_was_expected_and_what_was_found(tmp_path: Path) -> None:
    with pytest.raises(FileError) as caught:
        files.write_file(tmp_path / "missing" / "a", b"x")
    error = pickle.loads(pickle.dumps(caught.value))
    path = tmp_path / "missing" / "a"
    assert str(error) == (
        f"{path}: file: cannot be written; expected a folder that can be written to, found No such file or directory"
    )
    assert (error.errno, error.filename, error.expected) == (errno.ENOENT, str(path), "a folder that can be written to")


def test_discarded_and_failed_files_leave_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"old")
    staged = StagedFile(path)
    staged.write(b"new")
    staged.discard()
    staged.discard()
    with pytest.raises(ValueError, match="a fault"), StagedFile(path) as out:
        out.write(b"new")
        raise ValueError("a fault")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a"]


class TestSweep:
    def test_removes_what_nobody_holds_and_nothing_else(self, tmp_path: Path) -> None:
        left = files.staged_name(tmp_path / "a")
        left.write_bytes(b"half")
        link = files.staged_name(tmp_path / "latest")
        link.symlink_to("a")
        (tmp_path / "a.linnet-partial").touch()  # not hidden: somebody's own
        files.staged_name(tmp_path / "folder").mkdir()
        with StagedFile(tmp_path / "b"):
            assert files.sweep(tmp_path) == []  # making the file has swept, and the file itself is held
        assert names(tmp_path)[1:] == ["a.linnet-partial", "b"]
        assert not left.exists()
        assert not link.is_symlink()

    def test_without_locks_it_spares_what_was_written_today(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(files, "lock", lambda fd, wait=0.0: None)
        young, old = (files.staged_name(tmp_path / name) for name in ("young", "old"))
        young.touch()
        old.touch()
        os.utime(old, (time.time() - 90_000,) * 2)
        assert files.sweep(tmp_path) == [old]
        assert young.exists()

    def test_says_nothing_of_a_folder_that_is_not_there(self, tmp_path: Path) -> None:
        assert files.sweep(tmp_path / "missing") == []


def test_a_lock_is_held_until_its_process_dies(tmp_path: Path) -> None:
    path = tmp_path / "stream"
    path.touch()
    assert files.is_locked(path) is False
    code = f"""
import os, sys
from linnet import files
fd = os.open({str(path)!r}, os.O_RDWR)
print(files.lock(fd), flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        assert files.is_locked(path) is True
        fd = os.open(path, os.O_RDWR)
        began = time.monotonic()
        assert files.lock(fd) is False
        assert files.lock(fd, wait=0.05) is False
        assert time.monotonic() - began >= 0.05
        holder.kill()
        assert files.lock(fd, wait=None) is True
        os.close(fd)
    assert files.is_locked(tmp_path / "missing") is None


def test_reading_by_position_ends_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    fd = files.open_regular(path)
    assert files.read_at(fd, 4, 8) == b"89"
    buffer = bytearray(4)
    assert files.read_into(fd, memoryview(buffer), 3) == 4
    assert buffer == b"3456"
    assert files.read_into(fd, memoryview(buffer), 10) == 0
    os.close(fd)


def test_only_regular_files_are_opened_and_nobody_waits_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(OSError, match="not a regular file"):
            files.open_regular(path)


def test_a_step_is_made_and_read_by_one_rule(tmp_path: Path) -> None:
    weights = [files.step_path(tmp_path, step) for step in (200, 1_000, 30)]
    state = files.step_path(tmp_path, 200, files.STATE_SUFFIX)
    assert [path.name for path in weights] == ["step_200.gguf", "step_1000.gguf", "step_30.gguf"]
    assert state.name == "step_200.safetensors"
    assert files.step_of(weights[0]) == 200
    assert files.step_of(state) is None
    assert files.step_of(state, files.STATE_SUFFIX) == 200
    for name in ("step_.gguf", "step_-1.gguf", "step_1.gguf.bak", "astep_1.gguf", "step_²0.gguf", "latest"):
        assert files.step_of(Path(name)) is None, name
        (tmp_path / name).touch()
    for path in (*weights, state):
        path.touch()
    assert files.step_files(tmp_path) == [(30, weights[2]), (200, weights[0]), (1_000, weights[1])]
    assert files.step_files(tmp_path, files.STATE_SUFFIX) == [(200, state)]
    assert files.step_files(tmp_path / "missing") == []


def test_a_short_file_that_begins_as_expected_is_no_pointer(tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF")
    assert files.resolve_link(path) == path
    (tmp_path / "latest").write_text("broken.gguf\r\n")
    assert files.resolve_link(tmp_path / "latest") == path
    assert files.link_target(tmp_path / "latest") == "broken.gguf"
    assert files.link_target(path) == files.link_target(tmp_path / "best") == files.link_target(tmp_path) == ""
