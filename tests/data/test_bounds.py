"""What a corpus holds is bounded before it is unpacked, and no file ends the process."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from linnet.data import DataError, prepare
from linnet.data.corpus import Corpus
from linnet.data.corpus_file import CorpusFile, ReadingReport
from linnet.data.packs import IDS, PACK, id_passages
from linnet.data.rows import json_lines


def test_a_line_of_jsonl_is_bounded_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"text": "fine"}\n') + gzip.compress(bytes(1 << 20)) * 10_000)  # 10 GB
    limit = 700 << 20  # 256 MiB of line, a copy of it, and Python itself
    run = subprocess.run(
        [sys.executable, "-m", "linnet", "data", "prepare", str(path), "--vocab", "300", "--json"],
        env={**os.environ, "LINNET_CACHE": str(tmp_path / "cache"), "OPENBLAS_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 1
    assert run.stderr.startswith(f"linnet: corpus {path}: line 2 is longer than 256 MiB, the most that is read")
    assert run.stderr.count("\n") == 1


def test_a_line_as_long_as_allowed_is_read(tmp_path: Path) -> None:
    line = b'{"text": "' + b"x" * 1000 + b'"}\n'
    path = tmp_path / "a.jsonl"
    path.write_bytes(line * 2)
    assert list(json_lines(CorpusFile(path, "jsonl"), ReadingReport(), longest=len(line))) == ["x" * 1000] * 2
    with pytest.raises(DataError, match="line 1 is longer"):
        list(json_lines(CorpusFile(path, "jsonl"), ReadingReport(), longest=len(line) - 1))


def test_too_little_memory_is_said_in_one_line(cache: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def out_of_memory(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("codecs.getincrementaldecoder", out_of_memory)
        with pytest.raises(DataError, match=r"000.txt: there is not enough memory to read it"):
            prepare(folder, vocab=300)
    monkeypatch.setattr("linnet.data.preparation.encode", out_of_memory)
    with pytest.raises(DataError, match="stories: there is not enough memory to prepare it"):
        prepare(folder, vocab=300)


def test_a_pack_that_is_cut_short_while_it_is_read_is_an_error_and_no_end_of_the_process(tmp_path: Path) -> None:
    path = tmp_path / "a.i32"
    path.write_bytes(np.arange(3 << 20, dtype="<i4").tobytes())
    parts = id_passages(Corpus("a", (CorpusFile(path, PACK),)), vocab=3 << 20, end=None)
    assert next(parts)[0][0] == 0
    os.truncate(path, 4 << 20)
    with pytest.raises(DataError, match="the pack was cut short while it was read; start again"):
        list(parts)


def test_a_long_line_of_ids_is_read_in_blocks_and_stays_one_document(tmp_path: Path) -> None:
    lines = [list(range(k, k + 40)) for k in (0, 1000, 123456)]
    path = tmp_path / "a.ids"
    path.write_text("\n\n".join(" ".join(map(str, line)) for line in lines) + " ")

    def documents(block: int) -> list[list[int]]:
        found: list[list[int]] = []
        for ids, opens in id_passages(Corpus("a", (CorpusFile(path, IDS),)), vocab=1 << 20, end=None, block=block):
            if opens:
                found.append([])
            found[-1] += ids.tolist()
        return found

    assert all(documents(block) == lines for block in range(8, 300))
    path.write_text("1" * 1000)
    with pytest.raises(DataError, match="line 1 is not a list of token ids"):
        documents(64)


def test_parquet_that_is_no_text_is_said_in_one_line(cache: Path, tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    texts = pa.array([b"fine", b"\xff\xfe"], pa.binary()).view(pa.string())
    parquet.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"a.parquet: the column 'text' holds text that is not UTF-8"):
        prepare(tmp_path / "a.parquet", vocab=300)
