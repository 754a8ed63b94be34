"""The text of HTML: without tags, scripts and styles, a line for a block, in time linear to its length.

Not by `html.parser`: in the Pythons that are supported it takes quadratic time for some unfinished markup
(CVE-2025-6069), and a file of a corpus may be anything.
"""

from __future__ import annotations

import html
import re

# A tag: its name and what follows, in which a quoted value may hold a `>`. Possessive: nothing is tried twice.
_TAG = re.compile(r"""</?([A-Za-z][^\s/>]*+)(?:[^>"'=]++|=\s*+(?:"[^"]*+"|'[^']*+')?|["'])*+>""")
_ASIDE = re.compile(r"<!--|<!|<\?|</?[A-Za-z]")
_BLANKS = re.compile(r"[ \t\n\r\f]+")
_LONG_NUMBER = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9A-Fa-f]{7,});?")
# What is no text of the page; of these the first four may hold anything up to their own end tag.
_RAW = {"script", "style", "iframe", "noembed", "xmp"}
_DROPPED = _RAW | {"template", "svg", "math", "noscript", "object", "canvas", "audio", "video", "select", "datalist"}
_PARAGRAPHS = {
    *("p", "h1", "h2", "h3", "h4", "h5", "h6", "pre", "blockquote", "ul", "ol", "dl", "table", "figure", "hr", "title"),
    *("article", "section", "header", "footer", "main", "nav", "aside", "form", "fieldset", "details", "address"),
}
_LINES = {
    *("div", "br", "li", "dt", "dd", "tr", "caption", "figcaption", "legend", "summary", "option", "center", "body"),
    *("thead", "tbody", "tfoot", "textarea", "head", "html", "hgroup", "search", "dialog", "menu"),
}
_CELLS = {"td", "th"}


def html_text(source: str) -> str:
    """The text of an HTML document: blanks run together except in `<pre>`, blocks as lines, paragraphs apart."""
    page = _Page()
    position = 0
    while (match := _ASIDE.search(source, position)) is not None:
        page.text(source[position : match.start()])
        position = _after_markup(source, match, page)
    page.text(source[position:])
    return page.finished()


def _after_markup(source: str, match: re.Match[str], page: _Page) -> int:
    """Where the text goes on behind a tag, comment or script; one that is never closed takes the rest."""
    start, opening = match.start(), match[0]
    if opening == "<!--":
        return _behind(source, "-->", start + 2)
    if opening.startswith(("<!", "<?")):
        if source.startswith("<![CDATA[", start):
            end = source.find("]]>", start)
            page.text(source[start + 9 : end if end >= 0 else len(source)], literal=True)
            return end + 3 if end >= 0 else len(source)
        return _behind(source, ">", start)
    tag = _TAG.match(source, start)
    if tag is None:  # looked for to the end
        return len(source)
    name, is_end = tag[1].lower(), opening.startswith("</")
    if name in _RAW and not is_end:
        close = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(source, tag.end())
        return _behind(source, ">", close.start()) if close else len(source)
    page.tag(name, is_end, is_empty=source[tag.end() - 2] == "/")
    return tag.end()


def _behind(source: str, mark: str, start: int) -> int:
    end = source.find(mark, start)
    return end + len(mark) if end >= 0 else len(source)


class _Page:
    """Text as it comes, and the line ends that blocks want between."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._gap = ""  # a blank or line ends, wanted before the next text
        self._pre = 0
        self._dropped: str | None = None  # the element within which nothing is text
        self._depth = 0  # of elements of that name

    def text(self, source: str, literal: bool = False) -> None:
        if not source or self._dropped is not None:
            return
        text = source if literal or "&" not in source else html.unescape(_LONG_NUMBER.sub("\ufffd", source))
        text = text.replace("\0", "")
        if self._pre:
            self._add(text.replace("\r\n", "\n"))
            return
        text = _BLANKS.sub(" ", text)
        if text.startswith(" "):
            self._gap = self._gap or " "
        if stripped := text.strip(" "):
            self._add(stripped)
            self._gap = " " if text.endswith(" ") else ""

    def tag(self, name: str, is_end: bool, is_empty: bool) -> None:
        if self._dropped is not None:
            if name == self._dropped and not is_empty:
                self._depth += -1 if is_end else 1
                if not self._depth:
                    self._dropped = None
            return
        if name in _DROPPED and not is_end:
            if not is_empty:
                self._dropped, self._depth = name, 1
            return
        if name == "pre":
            self._pre = max(0, self._pre + (-1 if is_end else 1))
        if name in _PARAGRAPHS:
            self._gap = "\n\n"
        elif name == "br":
            self._gap = "\n" if self._gap in ("", " ") else "\n\n"
        elif name in _LINES:
            self._gap = self._gap if self._gap.startswith("\n") else "\n"
        elif name in _CELLS and not is_end and not self._gap.startswith("\n"):
            self._gap = "\t"

    def _add(self, text: str) -> None:
        if self._gap and self._parts:
            self._parts.append(self._gap)
        self._gap = ""
        self._parts.append(text)

    def finished(self) -> str:
        text = "".join(self._parts).strip("\n")
        return f"{text}\n" if text else ""
