"""Which encoding a text is in, told by its bytes, and the text of those bytes.

UTF-8, UTF-16 and UTF-32 are told by a byte-order mark or by their own structure. Of the encodings of one byte a letter
and of the East Asian ones, those of Western Europe, Turkey and Japan are told by the letters that a text uses; the
others are left to `charset_normalizer` where that is installed.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator

UTF8 = "utf-8"
HEAD = 1 << 16  # bytes of a file that tell what it is
_SAMPLE = 1 << 14  # bytes that `charset_normalizer` is shown
_MARKS = (
    (codecs.BOM_UTF8, UTF8),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_WIDE = ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
# Letters and signs of one encoding: a text that uses nothing else beyond ASCII is in it.
_ALPHABETS = (
    ("cp1252", "ÀÁÂÃÄÅÆÇÈÉÊËÍÎÏÑÓÔÕÖØÙÚÛÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüŒœ«»¡¿ªº“”‘’‚„–—…€£§©®°·•´\xa0"),
    ("cp1254", "ÇĞİÖŞÜçğıöşüÂâÎîÛû“”‘’–—…«»\xa0"),
    ("cp1252", "ÁÉÍÓÚÝÞÆÖÐáéíóúýþæöð“”„‘’–—…\xa0"),  # Icelandic
)
# What is worth asking for; `charset_normalizer` knows ninety, and more choices are more mistakes.
_OTHERS = (
    *("cp1252", "cp1250", "iso8859_2", "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp1256"),
    *("cp932", "euc_jp", "gb18030", "big5", "cp949"),
)
_FEW = 8  # letters: fewer tell nothing of an unknown encoding
_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
_BEYOND_ASCII = bytes(range(128, 256))
_CHARSET = re.compile(rb"<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*[\"']?\s*([A-Za-z0-9_:.-]{2,30})", re.I)


def is_utf8(head: bytes, is_whole: bool) -> bool:
    """Whether bytes are UTF-8 text; a character cut off at the end of what is not whole is none of its faults."""
    if not head or b"\0" in head:
        return False
    try:
        head.decode(UTF8)
    except UnicodeDecodeError as error:
        return not is_whole and error.start >= len(head) - 3
    return True


def detect(head: bytes, is_whole: bool, declared: bool = False) -> str | None:
    """The encoding of a text by its first bytes; None: it is binary, or in an encoding that cannot be told.

    `declared`: where it is no Unicode, HTML may say in its first kilobyte what it is.
    """
    if not head:
        return None
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding if _decodes(head, encoding, is_whole) else None
    if b"\0" in head:
        return next((name for name in _WIDE if _is_wide(head, name, is_whole)), None)
    if is_utf8(head, is_whole):
        return UTF8
    if len(head.translate(None, _CONTROLS)) < 0.995 * len(head):
        return None
    if declared and (match := _CHARSET.search(head[:1024])):
        name = match[1].decode("ascii").lower()
        if _is_known(name) and _decodes(head, name, is_whole):
            return name
    return _by_letters(head) or _by_kana(head) or _by_library(head, is_whole)


def decode(
    blocks: Iterable[bytes],
    encoding: str = UTF8,
    switched: Callable[[str], None] | None = None,
    *,
    is_begin: bool = True,
) -> Iterator[str]:
    """The text of bytes, without a byte-order mark where they are the beginning of a file.

    A UnicodeDecodeError has the place in the whole file where it begins to fail; a NUL, which is no text in any
    encoding, is a NulError. What began as ASCII, and so was taken for UTF-8, may turn out to be in another encoding
    later on: `switched` is told which.
    """
    decoder = codecs.getincrementaldecoder("utf-8-sig" if encoding == UTF8 and is_begin else encoding)()
    is_wide = encoding.startswith(("utf-16", "utf-32"))
    is_ascii = encoding == UTF8
    read = 0
    for block in _then_end(blocks):
        if not is_wide and b"\0" in block:
            raise NulError(read + block.index(0))
        held = len(decoder.getstate()[0])
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            data = error.object  # the block, behind what was held of the one before
            may_switch = is_ascii and data[: error.start].isascii()
            other = detect(data[error.start :][:HEAD], is_whole=False) if may_switch else None
            if other is None or other == UTF8:
                error.start += read - held
                raise
            if switched is not None:
                switched(other)
            decoder, is_ascii = codecs.getincrementaldecoder(other)(), False
            text = decoder.decode(data)
        is_ascii = is_ascii and text.isascii()
        if is_wide and "\0" in text:
            raise NulError(read)
        if text:
            yield text
        read += len(block)


class NulError(ValueError):
    """A NUL byte in what should be text; `at`: its place in the file."""

    def __init__(self, at: int) -> None:
        super().__init__(f"a NUL byte at {at}")
        self.at = at


def _then_end(blocks: Iterable[bytes]) -> Iterator[bytes]:
    yield from (block for block in blocks if block)
    yield b""


def _is_known(name: str) -> bool:
    """Whether Python has a codec of that name that turns bytes into text."""
    try:
        return isinstance(b" ".decode(name), str)
    except (LookupError, ValueError, TypeError):
        return False


def _decodes(head: bytes, encoding: str, is_whole: bool) -> bool:
    try:
        codecs.getincrementaldecoder(encoding)().decode(head, final=is_whole)
    except ValueError:
        return False
    return True


def _is_wide(head: bytes, encoding: str, is_whole: bool) -> bool:
    """Whether bytes with NULs among them are UTF-16 or UTF-32 without a mark: letters that one could print."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(head, final=is_whole)
    except ValueError:
        return False
    if len(text) < _FEW or "\0" in text:
        return False
    # Mostly ASCII, else nearly every two bytes would do; and without controls, which small numbers are full of.
    n_ascii = sum(character < "\x7f" for character in text)
    printed = sum(character.isprintable() or character in "\t\n\r\f" for character in text)
    return n_ascii >= 0.5 * len(text) and printed >= 0.98 * len(text)


def _by_letters(head: bytes) -> str | None:
    beyond = head.translate(None, bytes(range(128)))
    if not beyond or 3 * len(beyond) > len(head) + 8:  # these languages are written in ASCII, mostly
        return None
    used = set(beyond)
    return next((name for name, letters in _ALPHABETS if used <= set(letters.encode(name))), None)


def _by_kana(head: bytes) -> str | None:
    """Japanese, by the letters that no other language has; it is easily taken for Korean."""
    for name in ("cp932", "euc_jp"):
        try:
            text = codecs.getincrementaldecoder(name)().decode(head)
        except ValueError:
            continue
        beyond = [character for character in text if character > "\x7f"]
        if len(beyond) >= _FEW and sum("\u3041" <= character <= "\u3096" for character in beyond) > 0.2 * len(beyond):
            return name
    return None


def _by_library(head: bytes, is_whole: bool) -> str | None:
    try:
        from charset_normalizer import from_bytes
    except ImportError:
        return None
    if len(head) - len(head.translate(None, _BEYOND_ASCII)) < _FEW:
        return None
    match = from_bytes(head[:_SAMPLE], cp_isolation=list(_OTHERS)).best()
    if match is None or match.encoding not in _OTHERS:
        return None
    return match.encoding if _decodes(head, match.encoding, is_whole) else None
