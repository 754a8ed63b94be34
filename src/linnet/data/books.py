"""Documents that are files of their own: HTML, notebooks, EPUB, DOCX. Each gives one text."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

import msgspec

from linnet.data.corpus_file import CorpusFile, FileError, ReadingReport
from linnet.data.encoding import UTF8, decode, detect
from linnet.data.markup import html_text
from linnet.data.zipped import XmlReader, ZippedFile
from linnet.errors import mismatch

_HTML_TYPES = {"application/xhtml+xml", "text/html", "application/x-dtbook+xml"}


def html_page(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """The text of an HTML file."""
    if text := html_text(file.whole_text()):
        yield text


class _Cell(msgspec.Struct):
    source: str | list[str] = ""
    input: str | list[str] = ""  # its name in notebooks before version 4


class _Worksheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(msgspec.Struct):
    cells: list[_Cell] = []
    worksheets: list[_Worksheet] = []  # before version 4


def notebook(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """The sources of a Jupyter notebook's cells, without what they printed, a blank line between."""
    content = file.content() if file.encoding == UTF8 else file.whole_text().encode()
    try:
        read = msgspec.json.decode(content.removeprefix(b"\xef\xbb\xbf"), type=_Notebook)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FileError(file.path, f"this is no Jupyter notebook: {mismatch(error)}") from None
    cells = read.cells or [cell for sheet in read.worksheets for cell in sheet.cells]
    sources = (cell.source or cell.input for cell in cells)
    texts = ("".join(source).strip("\n") for source in sources)
    if text := "\n\n".join(text for text in texts if text):
        yield f"{text}\n"


def epub(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """The chapters of an EPUB in reading order, as one text."""
    zipped = ZippedFile(file)
    container = _Container()
    container.parse(zipped, _member(zipped, "META-INF/container.xml"))
    if container.package is None:
        raise zipped.error("this is no EPUB: its container names no package")
    package = _Package()
    package.parse(zipped, _member(zipped, container.package))
    folder, chapters = posixpath.dirname(container.package), []
    for item in package.spine:
        href, kind = package.items.get(item, ("", ""))
        if kind not in _HTML_TYPES:
            continue
        # Looked up among the members and nowhere else, so a path that leads upwards leads nowhere.
        name = posixpath.normpath(posixpath.join(folder, unquote(href.partition("#")[0])))
        content = zipped.read(name)
        if content is None:
            report.skip_row(file, f"the chapter {name[:80]!r} is not in it")
            continue
        encoding = detect(content[: 1 << 16], len(content) <= 1 << 16, declared=True) or UTF8
        try:
            chapters.append(html_text("".join(decode([content], encoding))))
        except ValueError:
            report.skip_row(file, f"the chapter {name[:80]!r} is no text")
    if text := "\n\n".join(chapter for chapter in chapters if chapter):
        yield text


def _member(zipped: ZippedFile, name: str) -> bytes:
    content = zipped.read(name)
    if content is None:
        raise zipped.error(f"there is no {name[:80]!r} in it")
    return content


class _Container(XmlReader):
    """META-INF/container.xml: where the package is."""

    package: str | None = None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "rootfile" and self.package is None:
            self.package = attributes.get("full-path")


class _Package(XmlReader):
    """An OPF file: its items with their paths and types, and the order in which they are read."""

    def __init__(self) -> None:
        self.items: dict[str, tuple[str, str]] = {}
        self.spine: list[str] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "item":
            self.items[attributes.get("id", "")] = (attributes.get("href", ""), attributes.get("media-type", ""))
        elif name == "itemref" and attributes.get("linear") != "no":
            self.spine.append(attributes.get("idref", ""))


def docx(file: CorpusFile, report: ReadingReport) -> Iterator[str]:
    """The text of a Word document: its body, then footnotes and endnotes; no headers, comments or deleted words."""
    zipped = ZippedFile(file)
    texts = []
    for part in ("word/document.xml", "word/footnotes.xml", "word/endnotes.xml"):
        content = zipped.read(part)
        if content is None:
            if part == "word/document.xml":
                raise zipped.error("this is no Word document: there is no 'word/document.xml' in it")
            continue
        paragraphs = _Paragraphs()
        paragraphs.parse(zipped, content)
        texts.append("".join(paragraphs.parts).strip("\n"))
    if text := "\n\n".join(text for text in texts if text):
        yield f"{text}\n"


class _Paragraphs(XmlReader):
    """A part of a Word document: paragraphs as lines, cells of a table side by side."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._is_text = False
        self._fallback = 0  # depth: what is drawn where a newer form is not known, the same words again
        self._cell = self._run = 0  # depths

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if name == "Fallback":
            self._fallback += 1
        elif name == "t":
            self._is_text = not self._fallback
        elif name == "tc":
            self._cell += 1
        elif name == "r":
            self._run += 1
        elif self._fallback or not self._run:  # a tab outside a run of text is a setting of the paragraph
            return
        elif name == "tab":
            self.parts.append("\t")
        elif name in ("br", "cr"):
            self.parts.append("\n")
        elif name == "noBreakHyphen":
            self.parts.append("-")

    def end(self, name: str) -> None:
        if name == "Fallback":
            self._fallback -= 1
        elif name == "t":
            self._is_text = False
        elif name == "r":
            self._run -= 1
        elif name == "tc":
            self._cell -= 1
            if self.parts and self.parts[-1] == " ":
                self.parts.pop()
            self.parts.append("\t")
        elif name == "tr":
            while self.parts and self.parts[-1] in ("\t", " "):
                self.parts.pop()
            self.parts.append("\n")
        elif name == "p" and not self._fallback:
            self.parts.append(" " if self._cell else "\n")

    def text(self, data: str) -> None:
        if self._is_text:
            self.parts.append(data)
