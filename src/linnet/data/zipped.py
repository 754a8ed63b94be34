"""Members of a zip file, read in memory and within bounds; nothing is ever unpacked to the disk."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from xml.parsers import expat

from linnet.data.corpus_file import LARGEST, CorpusFile, FileError

_MOST_IN_ALL = 1 << 30  # bytes of all members that are read of a file
_LARGEST_DIRECTORY = 1 << 22  # bytes: some 60,000 members
_END = struct.Struct("<4s4H2LH")


class ZippedFile:
    """A zip file in memory, whose members are read one by one: each at most 256 MiB, together at most 1 GiB."""

    def __init__(self, file: CorpusFile) -> None:
        self._path = file.path
        self._left = _MOST_IN_ALL
        content = file.content()
        self._check_directory(content)
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(content))
        except (zipfile.BadZipFile, ValueError, struct.error, NotImplementedError) as error:
            raise self.error(f"it is no sound zip file: {error}") from None

    @property
    def names(self) -> list[str]:
        """The names of its members."""
        return self._zip.namelist()

    def error(self, problem: str) -> FileError:
        """What is wrong with the file."""
        return FileError(self._path, problem)

    def read(self, name: str) -> bytes | None:
        """A member; None: there is none of that name, or it is a link."""
        try:
            member = self._zip.getinfo(name)
        except KeyError:
            return None
        if stat.S_ISLNK(member.external_attr >> 16):
            return None
        if member.flag_bits & 1:
            raise self.error("it is encrypted")
        most = min(LARGEST, self._left)
        if member.file_size > most:
            raise self.error(f"a member of it has more than {most >> 20} MiB, the most that is unpacked")
        try:
            with self._zip.open(member) as stream:
                content = stream.read(most + 1)  # a member may hold more than it says
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, OSError) as error:
            raise self.error(f"a member of it is damaged: {error}") from None
        if len(content) > most:
            raise self.error(f"a member of it has more than {most >> 20} MiB, the most that is unpacked")
        self._left -= len(content)
        return content

    def _check_directory(self, content: bytes) -> None:
        """Refuse a table of contents that would fill the memory before it is read."""
        end = content.rfind(b"PK\x05\x06", max(0, len(content) - 66_000))
        if end < 0 or end + _END.size > len(content):
            raise self.error("it is no sound zip file: it is cut short")
        size = _END.unpack_from(content, end)[5]
        if size > _LARGEST_DIRECTORY:
            raise self.error(f"its table of contents claims {size:,} bytes: too many members")


class XmlReader:
    """Calls `start(name, attributes)`, `end(name)` and `text(data)` for what an XML document holds.

    Names come without their namespace. Entities of its own are refused: a document of a kilobyte can define gigabytes.
    """

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def end(self, name: str) -> None:
        """An element ends."""

    def text(self, data: str) -> None:
        """Characters."""

    def parse(self, zipped: ZippedFile, content: bytes) -> None:
        """Read a whole document."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = lambda name, attributes: self.start(name.rpartition(":")[2], attributes)
        parser.EndElementHandler = lambda name: self.end(name.rpartition(":")[2])
        parser.CharacterDataHandler = self.text

        def refuse(*_: object) -> None:
            raise zipped.error("its XML defines entities, which are not read")

        parser.EntityDeclHandler = refuse
        try:
            parser.Parse(content, True)
        except expat.ExpatError as error:
            raise zipped.error(f"its XML is damaged: {error}") from None
