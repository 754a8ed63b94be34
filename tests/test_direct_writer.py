"""Large files go past the page cache: the same bytes, the same errors."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from linnet import files
from linnet.direct_writer import DirectWriter
from linnet.files import FileError, StagedFile

BLOCK = 8192


@given(sizes=st.lists(st.integers(0, 3 * BLOCK), max_size=8))
@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_file_has_the_bytes_in_their_order(tmp_path: Path, sizes: list[int]) -> None:
    parts = [os.urandom(size) for size in sizes]
    path = tmp_path / "a"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    writer = DirectWriter(fd, BLOCK)
    for part in parts:
        writer.write(memoryview(part))
    writer.finish()
    writer.close()
    os.write(fd, b"and more, in the usual way")
    os.close(fd)
    assert path.read_bytes() == b"".join(parts) + b"and more, in the usual way"


def test_a_staged_file_that_will_be_large_is_written_so_and_can_be_corrected(tmp_path: Path) -> None:
    content = bytes(range(256)) * (20 << 12)  # 20 MB: a block, and a part of one
    with StagedFile(tmp_path / "a", size=files.LARGE_BYTES) as out:
        out.write(content[:1000])
        out.write(content[1000:])
        assert out.written == len(content)
        out.replace(b"digest", 8)
    assert (tmp_path / "a").read_bytes() == content[:8] + b"digest" + content[14:]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (tmp_path / "a").write_text("before")
    monkeypatch.setattr(os, "write", full)
    with (
        pytest.raises(FileError, match=r"cannot be written.*No space left"),
        StagedFile(tmp_path / "a", size=files.LARGE_BYTES) as out,
    ):
        for _ in range(3):  # the first block is on its way when the second is given
            out.write(bytes(16 << 20))
    monkeypatch.undo()
    assert (tmp_path / "a").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_disk_that_wants_other_blocks_is_written_in_the_usual_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, refused = os.write, []

    def picky(fd: int, data: memoryview) -> int:
        if not refused:
            refused.append(fd)
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return write(fd, data)

    monkeypatch.setattr(os, "write", picky)
    content = os.urandom(3 * BLOCK + 17)
    fd = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    writer = DirectWriter(fd, BLOCK)
    if not writer._bypasses:
        pytest.skip("the temporary folder's file system has no O_DIRECT")
    writer.write(memoryview(content))
    writer.finish()
    writer.close()
    os.close(fd)
    assert refused and (tmp_path / "a").read_bytes() == content
