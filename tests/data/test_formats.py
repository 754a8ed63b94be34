"""Text as it lies about: compressed, in tables, web pages, notebooks, books, office documents and other encodings."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import json
import lzma
import sys
import zipfile
from pathlib import Path
from random import Random

import pytest

from linnet.cli import main
from linnet.data import DataError, prepare
from linnet.data.corpus import find_corpus
from linnet.data.documents import passages
from linnet.data.markup import html_text
from tests.data.conftest import story

pytestmark = pytest.mark.usefixtures("cache")
STORIES = [story(number) for number in range(30)]


def read(path: Path, **how: object) -> list[str]:
    """The documents of a corpus."""
    return [passage.text for passage in passages(find_corpus(path, **how))]  # type: ignore[arg-type]


def write(path: Path, content: bytes | str) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8"))
    return path


def zipped(path: Path, members: dict[str, str]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def zstd(content: bytes) -> bytes:
    module = pytest.importorskip("backports.zstd")
    return bytes(module.compress(content))


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz", "zst"])
def test_compressed_text_and_rows_are_read_as_if_they_were_not(tmp_path: Path, suffix: str) -> None:
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd}[suffix]
    text = "\n<|endoftext|>\n".join(STORIES)
    rows = "".join(json.dumps({"text": story}) + "\n" for story in STORIES)
    table = "id,text\n" + "".join(f'{k},"{story}"\n' for k, story in enumerate(STORIES))
    # Two streams, one behind the other, are one file.
    assert read(write(tmp_path / f"a.txt.{suffix}", pack(text[:900].encode()) + pack(text[900:].encode()))) == read(
        write(tmp_path / "a.txt", text)
    )
    assert read(write(tmp_path / f"b.jsonl.{suffix}", pack(rows.encode()))) == STORIES
    assert read(write(tmp_path / f"c.csv.{suffix}", pack(table.encode()))) == STORIES
    assert read(write(tmp_path / "no-ending", pack(STORIES[0].encode()))) == STORIES[:1]


def test_a_large_compressed_file_is_unpacked_ahead_and_the_same(tmp_path: Path) -> None:
    text = "".join(f"{chance.getrandbits(600):x} {story(k, 2)}" for chance in [Random(0)] for k in range(9000))
    path = write(tmp_path / "a.txt.gz", gzip.compress(text.encode(), 1))
    assert path.stat().st_size > 1 << 20 < len(text)
    assert "".join(read(path)) == text
    stream = passages(find_corpus(path))
    next(stream)
    stream.close()  # the thread that unpacks ends with it


def test_columns_of_csv_and_tsv_by_name_quoted_or_not(tmp_path: Path) -> None:
    text = 'He said ""no"", twice;\nthen left'
    said = text.replace('""', '"')
    assert read(write(tmp_path / "a.csv", f'id,text\r\n1,"{text}"\r\n2,plain\r\n3,\r\n')) == [said, "plain"]
    assert read(write(tmp_path / "b.csv", f'id;body\n1;"{text}"\n'), field="body") == [said]
    assert read(write(tmp_path / "c.tsv", "id\ttext\n1\ta, b; c\n")) == ["a, b; c"]
    with pytest.raises(DataError, match=r"there is no column 'text'; it has id, body: see `field`"):
        read(tmp_path / "b.csv")
    with pytest.raises(DataError, match=r"a quoted field that ends with line 3 is never closed"):
        read(write(tmp_path / "d.csv", 'text\n"open\nfor ever\n'))
    with pytest.raises(DataError, match=r"line 3 has 1 of 2 columns"):
        read(write(tmp_path / "e.csv", "id,text\n1,a\n2\n"))


def test_fields_differ_by_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "a.csv", "id,text\n" + "".join(f'{k},"{story}"\n' for k, story in enumerate(STORIES[:10])))
    write(folder / "b.jsonl", "".join(json.dumps({"body": story}) + "\n" for story in STORIES[10:20]))
    words = ["--field", "*.csv=text", "--field", "body", "--vocab", "280", "--held-out", "0", "--json"]
    assert main(["data", "prepare", str(folder), *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["train"]["documents"], told["left_out"]) == (20, [])
    assert read(folder, field=("*.csv=text", "body")) == STORIES[:20]
    with pytest.raises(DataError, match=r"no file with rows .* fits the pattern of '\*\.tsv=text'"):
        read(folder, field="*.tsv=text")
    with pytest.raises(DataError, match=r"two fields for all files, 'a' and 'b'"):
        read(folder, field=("a", "b"))


def test_rows_without_the_field_are_left_out_of_a_folder_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "a.jsonl", "".join(json.dumps({"text": story}) + "\n" for story in STORIES) + '{"body": 1}\n{}\n')
    write(folder / "b.csv", "id,body\n1,x\n")
    prepared = prepare(folder, vocab=300)
    for _ in "12":  # prepared, and from the cache
        assert prepared.left_out == (
            "a.jsonl: 2 rows of it left out: line 31 has no text 'text'; it has body: see `field`",
            "b.csv: there is no column 'text'; it has id, body: see `field`",
        )
        prepared = prepare(folder, vocab=300)
    with pytest.raises(DataError, match="line 31 has no text 'text'"):
        prepare(folder / "a.jsonl", vocab=300)  # a file that was named is read whole or not at all


def test_the_text_of_html_is_what_a_reader_sees() -> None:
    page = """<!DOCTYPE html><html><head><title>A &amp; B</title><style>p > a { color: red }</style>
    <script>if (a < b) { document.write("<p>not this</p>") }</script></head><body>
    <!-- nor <p>this</p> --><h1>Tea&nbsp;time</h1><p>One   <b>bold</b> line,
    a <a href="x?a>b">link</a>.<br/>Second &lt;line&gt; caf&eacute; &#8364; &#x41;</p>
    <ul><li>a<li>b</ul><table><tr><td>1</td><td>2</td></tr></table><pre>  kept
   as it is</pre><template><p>no</p></template><svg><text>no</text></svg><p>5 < 6 and AT&T</p></body></html>"""
    assert html_text(page) == (
        "A & B\n\nTea\xa0time\n\nOne bold line, a link.\nSecond <line> café € A\n\na\nb\n\n1\t2\n\n"
        "  kept\n   as it is\n\n5 < 6 and AT&T\n"
    )


def test_html_notebooks_books_and_documents_are_read(tmp_path: Path) -> None:
    write(tmp_path / "page.html", "<meta charset=iso-8859-2><p>za\xbf\xf3\xb3\xe6".encode("latin-1"))
    assert read(tmp_path / "page.html") == ["zażółć\n"]
    cells = [{"cell_type": "markdown", "source": ["# Title\n", "text"]}, {"cell_type": "code", "source": "x = 1"}]
    cells.append({"cell_type": "code", "source": "y = 2", "outputs": [{"text": "not this"}]})  # type: ignore[dict-item]
    write(tmp_path / "n.ipynb", json.dumps({"cells": cells, "nbformat": 4}))
    assert read(tmp_path / "n.ipynb") == ["# Title\ntext\n\nx = 1\n\ny = 2\n"]
    book = {
        "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/c.opf"/></rootfiles></container>',
        "OEBPS/c.opf": '<package xmlns="http://www.idpf.org/2007/opf"><manifest>'
        '<item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="a" href="text/one%20.xhtml" media-type="application/xhtml+xml"/>'
        '<item id="c" href="x.css" media-type="text/css"/></manifest>'
        '<spine><itemref idref="a"/><itemref idref="b"/><itemref idref="c"/></spine></package>',
        "OEBPS/text/one .xhtml": "<html><body><h1>One</h1><p>first</p></body></html>",
        "OEBPS/two.xhtml": "<html><body><p>second</p></body></html>",
        "OEBPS/x.css": "p {}",
    }
    assert read(zipped(tmp_path / "b.epub", book)) == ["One\n\nfirst\n\n\nsecond\n"]
    w = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" xmlns:mc="m"'
    body = (
        "<w:p><w:pPr><w:tabs><w:tab/></w:tabs></w:pPr><w:r><w:t>Hello</w:t><w:tab/><w:t>you</w:t></w:r></w:p>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:t>here</w:t><w:br/><w:t>on</w:t></w:r></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc><w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc>"
        "</w:tr></w:tbl><mc:Fallback><w:p><w:r><w:t>twice</w:t></w:r></w:p></mc:Fallback>"
    )
    members = {"word/document.xml": f"<w:document {w}><w:body>{body}</w:body></w:document>"}
    members["word/footnotes.xml"] = f"<w:footnotes {w}><w:p><w:r><w:t>a note</w:t></w:r></w:p></w:footnotes>"
    assert read(zipped(tmp_path / "d.docx", members)) == ["Hello\tyou\nhere\non\n1\t2\n\na note\n"]
    for name in ("page.html", "n.ipynb"):
        source = (tmp_path / name).read_bytes()
        assert read(tmp_path / name, plain=True) == [source.decode("utf-8" if name == "n.ipynb" else "iso8859-2")]


def pdf_of(*lines: str) -> bytes:
    """A PDF of a page a line."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b""]
    pages = []
    for line in lines:
        stream = f"BT /F1 12 Tf 72 720 Td ({line}) Tj ET".encode()
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
        font = b"<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>"
        number = len(objects)
        objects.append(b"<</Type/Page/Parent 2 0 R/Contents %d 0 R/Resources<</Font %s>>>>" % (number, font))
        pages.append(b"%d 0 R" % len(objects))
    objects[1] = b"<</Type/Pages/Count %d/Kids[%s]/MediaBox[0 0 612 792]>>" % (len(pages), b" ".join(pages))
    content, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(content))
        content += b"%d 0 obj%s endobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(content)
    content += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    return content + b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)


def test_pdf_is_read_and_what_is_none_is_left_out(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "a.pdf", pdf_of("Hello there", "page two"))
    write(folder / "b.pdf", b"%PDF-1.4 and nothing else")
    write(folder / "scan.pdf", pdf_of(""))
    for number, text in enumerate(STORIES):
        write(folder / f"{number}.txt", text)
    prepared = prepare(folder, vocab=300, held_out=0)
    assert prepared.tokenizer is not None
    texts = [prepared.tokenizer.decode(prepared.train.document(k).tolist()) for k in range(31)]
    assert "Hello there\n\npage two\n" in texts
    named = dict(words.split(": ", 1) for words in prepared.left_out)
    assert named["b.pdf"].startswith("this is no sound PDF: ")
    assert named["scan.pdf"] == "the PDF holds no text: its pages are images, or empty"
    assert sorted(path.name for path in prepared.path.iterdir())[0] == "held_out.tokens"  # no texts are left behind


def test_libraries_that_are_missing_are_named_with_the_line_that_installs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "a.pdf", pdf_of("x"))
    write(folder / "b.txt.zst", b"\x28\xb5\x2f\xfd and so on")
    write(folder / "c.txt", STORIES[0] * 3)
    write(folder / "d.txt", "Съешь же ещё этих мягких французских булок.".encode("koi8-r"))
    real = importlib.util.find_spec

    def find_spec(name: str, package: str | None = None) -> object:
        return None if name in ("pypdf", "charset_normalizer") else real(name, package)

    for module in ("pypdf", "charset_normalizer", "backports", "compression"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("importlib.util.find_spec", find_spec)
    monkeypatch.setattr("linnet.data.pdf.find_spec", find_spec)
    install = "pip install 'linnet[documents]'"
    assert sorted(prepare(folder, vocab=280, held_out=0).left_out) == [
        f"a.pdf: reading PDF needs the package pypdf: {install}",
        f"b.txt.zst: reading zstd needs the package backports.zstd: {install}",
        "d.txt: not text: bytes in no encoding that can be told; more are known with charset-normalizer: " + install,
    ]


@pytest.mark.parametrize(
    ("text", "encoding", "taken"),
    [
        ("Die Straße führt über die Brücke. ", "cp1252", "cp1252"),
        ("L'été dernier, à la plage où ça plaît – même l’hôtel. ", "cp1252", "cp1252"),
        ("Pijamalı hasta yağız şoföre çabucak güvendi. ", "cp1254", "cp1254"),
        ("Zażółć gęślą jaźń, kiń tę chmurność w głąb flaszy. ", "cp1250", "cp1250"),
        ("Съешь же ещё этих мягких французских булок. ", "koi8_r", "koi8_r"),
        ("Съешь же ещё этих мягких французских булок. ", "cp1251", "cp1251"),
        ("吾輩は猫である。名前はまだ無い。どこで生れたか。", "cp932", "cp932"),
        ("天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。", "gb18030", "gb18030"),
        ("Grüße, naïve Ωmega", "utf-16", "utf-16"),
        ("Grüße, naïve text", "utf-16-le", "utf-16-le"),
        ("Grüße, naïve text", "utf-16-be", "utf-16-be"),
        ("Grüße, naïve text", "utf-32", "utf-32"),
        ("Grüße, naïve text", "utf-32-be", "utf-32-be"),
    ],
)
def test_other_encodings_are_detected_and_told(tmp_path: Path, text: str, encoding: str, taken: str) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "a.txt", (text * 9).encode(encoding))
    assert read(folder) == [text * 9]
    assert find_corpus(folder).encodings() == {taken: ["a.txt"]}


def test_an_encoding_that_shows_late_is_told_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write(folder / "log.txt", b"plain words of a log\n" * 9000 + "Grüße aus Köln\n".encode("cp1252") * 9)
    write(folder / "mixed.txt", b"fine\n" * 300_000 + "über\n".encode() + b"\xff\xfe\xfd" + b"rest")
    assert main(["data", "prepare", str(folder), "--vocab", "280"]) == 0
    told = capsys.readouterr().out
    assert "1 file read as cp1252: log.txt" in told
    assert "mixed.txt: this is not UTF-8 near byte 1500006" in told
    assert "what comes before is read" in told
    assert "Grüße aus Köln" in "".join(read(folder))


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    mark = b"\xef\xbb\xbf"
    assert read(write(tmp_path / "a.csv", mark + b"text,id\nhello,1\n")) == ["hello"]
    assert read(write(tmp_path / "a.jsonl", mark + b'{"text": "hello"}\n')) == ["hello"]
    assert read(write(tmp_path / "b.jsonl", '{"text": "größer"}\n'.encode("utf-16"))) == ["größer"]
    assert read(write(tmp_path / "c.csv", "text;id\nBrücke;1\n".encode("cp1252"))) == ["Brücke"]


def test_what_was_prepared_before_there_were_formats_is_read_as_then(folder: Path) -> None:
    """A run of that time goes on with the very same tokens, whatever else lies in its folder."""
    before = find_corpus(folder, plain=None)
    write(folder / ".gitignore", "0*\n")
    write(folder / "late.txt.gz", gzip.compress(b"text"))
    write(folder / "latin.txt", "Grüße ".encode("cp1252") * 9)
    assert find_corpus(folder, plain=None).files == before.files
    assert len(find_corpus(folder).files) == len(before.files) - 100 + 2
