"""Files that were made to do harm: each is bounded before it is unpacked, takes linear time, and is one line."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import random
import struct
import tempfile
import time
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from linnet.data import DataError, corpus_file
from linnet.data.compression import DamagedError, read_blocks
from linnet.data.corpus import find_corpus
from linnet.data.documents import passages
from linnet.data.markup import html_text
from linnet.data.pdf import _PdfReader
from tests.data.test_formats import pdf_of, zstd


def read(path: Path) -> list[str]:
    return [passage.text for passage in passages(find_corpus(path))]


def refused(path: Path, words: str) -> None:
    """One line, wherever the file is named; and left out of a folder with the same reason."""
    with pytest.raises(DataError, match=words) as caught:
        read(path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def zipped(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, body in members.items():
            file.writestr(name, body)
    return content.getvalue()


BODY = b"<w:document xmlns:w='w'><w:p><w:r><w:t>%s</w:t></w:r></w:p></w:document>"


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_a_bomb_is_read_as_a_stream_and_given_up(tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}[suffix]
    monkeypatch.setattr("linnet.data.compression._BOMB_FROM", 1 << 22)
    (tmp_path / f"a.txt.{suffix}").write_bytes(pack(b"a " * (1 << 19)) * 40)
    refused(tmp_path / f"a.txt.{suffix}", "it unpacks to more than 200 times its size")
    monkeypatch.setattr(corpus_file, "LARGEST", 1 << 20)
    (tmp_path / f"a.html.{suffix}").write_bytes(pack(b"a " * (1 << 20)))
    refused(tmp_path / f"a.html.{suffix}", "it is larger than 1 MiB, the most that is read of such a file")


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
@settings(max_examples=20, deadline=None)
@given(st.data())
def test_a_damaged_compressed_file_is_an_error_or_its_text(suffix: str, data: st.DataObject) -> None:
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}[suffix]
    text = random.Random(0).randbytes(300).hex().encode()
    content = bytearray(pack(text))
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content) - 1))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a"
        path.write_bytes(content)
        try:
            assert len(b"".join(read_blocks(path, suffix))) <= len(text)
        except DamagedError as error:
            assert str(error)


def test_what_is_before_the_damage_is_read_from_a_folder(tmp_path: Path) -> None:
    text = random.Random(0).randbytes(200_000).hex()
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text.encode())[:150_000])
    corpus = find_corpus(tmp_path)
    report = corpus_file.ReadingReport(corpus.strict)
    assert text.startswith("".join(passage.text for passage in passages(corpus, None, report)))
    assert "the compressed file is damaged after" in report.left_out[0]
    assert report.left_out[0].endswith("it is cut short; what comes before is read")


def test_documents_that_are_zip_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.docx"
    path.write_bytes(zipped({"word/document.xml": BODY % (b"a" * 5_000_000)}))
    monkeypatch.setattr("linnet.data.zipped.LARGEST", 1 << 20)
    refused(path, "a member of it has more than 1 MiB, the most that is unpacked")
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\1\2", 24), (b"PK\3\4", 22)):  # it says that it is small
        at = content.rindex(mark) + place
        content[at : at + 4] = struct.pack("<I", 1000)
    path.write_bytes(content)
    refused(path, "a member of it (has more than 1 MiB|is damaged)")
    monkeypatch.undo()
    laughs = b"<!DOCTYPE x [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><x>&b;</x>"
    path.write_bytes(zipped({"word/document.xml": laughs}))
    refused(path, "its XML defines entities, which are not read")
    path.write_bytes(zipped({"word/document.xml": laughs.decode().encode("utf-16")}))
    refused(path, "its XML defines entities, which are not read")
    path.write_bytes(zipped({"word/document.xml": b"<w:p>" * 10_000}))
    refused(path, "its XML is damaged")
    path.write_bytes(zipped({"word/other.xml": b""}))
    refused(path, "this is no Word document")
    for cut in (10, 60, 100):
        path.write_bytes(zipped({"word/document.xml": BODY % b"x"})[:-cut])
        refused(path, "it is no sound zip file")
    content = bytearray(zipped({"word/document.xml": BODY % b"x"}))
    content[-10:-6] = struct.pack("<I", 2_000_000_000)  # a table of contents of 2 GB
    path.write_bytes(content)
    refused(path, "its table of contents claims 2,000,000,000 bytes")


def test_links_and_paths_upwards_in_a_book_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "secret.xhtml").write_text("<p>secret</p>")
    link = zipfile.ZipInfo("OEBPS/link.xhtml")
    link.external_attr = 0o120777 << 16
    items = {"a": "../../secret.xhtml", "b": "/secret.xhtml", "c": "link.xhtml", "d": "fine.xhtml"}
    with zipfile.ZipFile(tmp_path / "b.epub", "w") as book:
        book.writestr("META-INF/container.xml", "<c><rootfile full-path='OEBPS/c.opf'/></c>")
        manifest = "".join(
            f"<item id='{name}' href='{href}' media-type='application/xhtml+xml'/>" for name, href in items.items()
        )
        spine = "".join(f"<itemref idref='{name}'/>" for name in items)
        book.writestr("OEBPS/c.opf", f"<package>{manifest}{spine}</package>")
        book.writestr(link, "../secret.xhtml")
        book.writestr("OEBPS/fine.xhtml", "<p>fine</p>")
    refused(tmp_path / "b.epub", r"the chapter '\.\./secret\.xhtml' is not in it")
    (tmp_path / "set").mkdir()
    (tmp_path / "b.epub").rename(tmp_path / "set" / "b.epub")
    corpus = find_corpus(tmp_path / "set")
    report = corpus_file.ReadingReport(strict=False)
    assert [passage.text for passage in passages(corpus, None, report)] == ["fine\n"]
    assert report.left_out[0].startswith("3 rows of it left out: the chapter")


HTML = [
    "<" * 300_000,
    "<a" * 300_000,
    "<!--" * 200_000,
    "<script>" * 100_000,
    "<div>" * 50_000 + "deep" + "</div>" * 50_000,
    "<a b='" * 100_000,
    '<a ="' * 100_000 + ">",
    '<a ="\'>" ' * 60_000,
    "</" * 300_000,
    "<![CDATA[" * 100_000,
    "&" * 500_000,
    "&#" + "9" * 500_000 + ";",
    "&amp" * 200_000,
    "<svg>" * 100_000,
    "<pre>" * 100_000 + " x",
    "<p " + "a " * 300_000 + ">",
    "<?" * 200_000,
    "</script" * 100_000,
    "<script></" * 100_000,
]


@pytest.mark.parametrize("number", range(len(HTML)))
def test_html_takes_linear_time(number: int) -> None:
    began = time.process_time()
    html_text(HTML[number])
    assert time.process_time() - began < 3


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("<>/!-?\"'= &;#abpre\n\t]["), max_size=200), st.text(max_size=50))
def test_any_html_gives_text(markup: str, text: str) -> None:
    assert "\0" not in html_text(markup + text)
    assert html_text(f"<p>{text.replace('<', '').replace('&', '')}").split() == (
        text.replace("<", "").replace("&", "").replace("\0", "").split()
    ) or any(space in text for space in "\x0b\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029")


def test_a_long_line_or_field_of_csv_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = csv.field_size_limit
    monkeypatch.setattr("linnet.data.rows._LARGEST_FIELD", 1 << 20)
    monkeypatch.setattr("csv.field_size_limit", lambda *_: limit(1 << 20))
    (tmp_path / "a.csv").write_text("text\n" + "x" * (3 << 20), encoding="utf-8")
    refused(tmp_path / "a.csv", "line 2 is longer than 1 MiB")
    (tmp_path / "b.csv").write_text('text\n"' + "x\n" * (2 << 20), encoding="utf-8")
    refused(tmp_path / "b.csv", r"field larger than field limit \(1048576\)")
    (tmp_path / "c.csv").write_bytes(b"text\nfine\n" + b"\0" * 100)
    refused(tmp_path / "c.csv", "this is not text: expected UTF-8, found NUL bytes")


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_characters="\0\r", codec="utf-8"), min_size=1), min_size=2, max_size=2)
    )
)
def test_any_table_comes_back_from_csv(rows: list[list[str]]) -> None:
    import csv
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "a.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["id", "text"], *rows])
        assert read(path) == [text for _, text in rows]


def test_notebooks_and_pdfs_that_are_none_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.ipynb"
    for content in (b"{", b"[]", b'{"cells": 5}', b'{"cells": [{"source": {}}]}', b"[" * 100_000):
        path.write_bytes(content)
        refused(path, "this is no Jupyter notebook")
    pytest.importorskip("pypdf")
    path = tmp_path / "a.pdf"
    whole = pdf_of("text")
    for content in (b"%PDF-1.7\n" + b"<<" * 50_000, whole[:200], whole.replace(b"/Kids[", b"/Kids[2 0 R ")):
        path.write_bytes(content)
        try:
            assert read(path) == ["text\n"]  # what is mended is as good
        except DataError as error:
            assert "PDF" in str(error) and "\n" not in str(error)
    reader = _PdfReader()
    monkeypatch.setattr(
        reader, "_started", lambda: __import__("subprocess").Popen(["sleep", "60"], stdin=-1, stdout=-1)
    )
    assert reader.read(whole, longest=0.2)[1].startswith("the PDF takes more than 0 s or 4 GiB")
    assert reader._process is None, "the next file has another process, however long that one takes to end"


def test_rows_are_a_stream(tmp_path: Path) -> None:
    """A file of many rows is a stream: the first is there before the last was unpacked."""
    line = json.dumps({"text": "word " * 200}).encode() + b"\n"
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(line * 1000) + b"damaged")
    texts = passages(find_corpus(tmp_path / "a.jsonl.gz"))
    assert next(texts).text.startswith("word")
    with pytest.raises(DataError, match="the compressed file is damaged after line 1000"):
        list(texts)
