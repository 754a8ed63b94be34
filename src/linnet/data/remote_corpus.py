"""A corpus in a store elsewhere: its files have their places in the cache, and are fetched when they are read.

<cache>/remote/<hash of the URL>/<name>/…      the files. One that was not needed yet has its size and its beginning, by
                                               which its format is told; the rest of it is a hole
…/.<name>.linnet-fetched                       beside a file that is there whole: its version in the store
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from linnet.data.encoding import HEAD
from linnet.data.errors import DataError, reason
from linnet.files import write_file
from linnet.remote import RemoteError, RemoteFile, Store, fetching_name

FOLDER = "remote"
_AT_ONCE = 8  # requests to a store
_STAR = re.compile(r"[*?\[]")

FetchProgress = Callable[[str, int, int], None]


class RemoteCorpus:
    """The files below a URL: a file, a folder or a pattern.

    - `path`: where the corpus has its place here; `is_folder`, `is_pattern`: what was named.
    - `paths`: all files, sorted as those of a folder are.
    """

    def __init__(self, url: str, cache: Path) -> None:
        try:
            self._store = Store(url)
            self.is_pattern = _STAR.search(self._store.path) is not None
            self._files = self._store.fitting() if self.is_pattern else self._store.files()
            is_file = not self.is_pattern and self._store.is_file()
        except RemoteError as error:
            raise DataError(f"corpus {error}") from None
        self._files = {name: file for name, file in self._files.items() if _is_read(name)}
        if not self._files:
            problem = "no file fits this pattern" if self.is_pattern else "there is no file below it"
            raise DataError(f"corpus {url}: {problem}")
        self.is_folder = not is_file and not self.is_pattern
        name = url.rstrip("/").rpartition("/")[2] if self.is_folder else ""
        copies = cache / FOLDER / hashlib.blake2b(url.encode(), digest_size=12).hexdigest()
        self.folder = copies / (re.sub(r"[^\w.+=@-]+", "-", name) or "corpus")
        self._names = {self.folder / name: name for name in self._files}
        self.paths = sorted(self._names, key=lambda path: path.relative_to(self.folder).parts)
        self.path = self.paths[0] if is_file else self.folder
        try:
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                list(threads.map(self._place, self.paths))
        except RemoteError as error:
            raise DataError(f"corpus {error}") from None
        except OSError as error:
            raise DataError(f"cache {cache}: it cannot be written to: {reason(error)}") from None

    def complete(self, paths: Iterable[Path], progress: FetchProgress | None = None) -> None:
        """Fetch those of some files that are not here whole."""
        missing = [path for path in paths if path in self._names and not self._is_whole(path)]
        total, done = sum(self._files[self._names[path]].size for path in missing), 0
        if not missing:
            return
        try:
            with ThreadPoolExecutor(_AT_ONCE) as threads:
                for path, _ in zip(missing, threads.map(self._fetch, missing), strict=True):
                    done += self._files[self._names[path]].size
                    if progress is not None:
                        progress("fetching", done, total)
        except RemoteError as error:
            raise DataError(f"corpus {error}") from None
        except OSError as error:
            raise DataError(f"corpus {self._store.url}: it cannot be kept: {reason(error)}") from None

    def _place(self, path: Path) -> None:
        """Give a file its place: whole where it is small, else its beginning and a hole."""
        file = self._files[self._names[path]]
        with suppress(FileNotFoundError):
            is_other = path.stat().st_size != file.size or (_mark(path).exists() and not self._is_whole(path))
            if not is_other:
                return
            _mark(path).unlink(missing_ok=True)
            path.unlink()
        if file.size <= HEAD:
            self._fetch(path)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = fetching_name(path)
        try:
            with staged.open("wb") as placed:
                placed.write(self._store.read(self._names[path], HEAD))
                placed.truncate(file.size)
            os.link(staged, path)  # unlike a rename it never takes the place of a file that another process has fetched
        except FileExistsError:
            pass
        finally:
            staged.unlink(missing_ok=True)

    def _fetch(self, path: Path) -> None:
        name = self._names[path]
        file = self._files[name]
        self._store.download(name, path)
        if (size := path.stat().st_size) != file.size:
            path.unlink()
            raise RemoteError(f"{self._store.url}: {name} has {size} bytes where {file.size} were expected; try again")
        write_file(_mark(path), _version(file), sync=False)

    def _is_whole(self, path: Path) -> bool:
        with suppress(OSError):
            return _mark(path).read_bytes() == _version(self._files[self._names[path]])
        return False


def _version(file: RemoteFile) -> bytes:
    return f"{file.size} {file.version}\n".encode()


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.name}.linnet-fetched")


def _is_read(name: str) -> bool:
    """Whether a file of a store may be part of a corpus: not hidden, and with a name that stays below its folder."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part for part in parts):
        return False
    return not any(part.startswith(".") and part != ".gitignore" for part in parts)
