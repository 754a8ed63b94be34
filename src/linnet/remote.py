"""Files in a store elsewhere: `s3://`, `gs://`, `hf://` and whatever else `fsspec` knows, where that is installed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from linnet.errors import LinnetError, error_text

_URL = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
# The package behind a protocol, and the extra of ours that brings it.
_PACKAGES = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "hf": "huggingface_hub"}
_EXTRAS = {"s3fs": "s3", "gcsfs": "gs", "huggingface_hub": "hf"}
_WHOLE_OR_NOTHING = {"s3", "s3a", "gs", "gcs", "hf", "az", "abfs", "adl", "memory"}  # an object is never half there
_LONGEST_REASON = 300
_Answer = TypeVar("_Answer")


class RemoteError(LinnetError):
    """A store that cannot be reached, or does not give what is asked of it."""


class RemoteFile(NamedTuple):
    """A file of a store; `version` changes with its content."""

    size: int
    version: str


def is_url(name: str | os.PathLike[str]) -> bool:
    """Does a name mean something in a store, as `s3://bucket/corpus` does?"""
    return _URL.match(os.fspath(name)) is not None


def joined(url: str, name: str) -> str:
    """The URL of what lies below another."""
    return f"{url.rstrip('/')}/{name}"


class Store:
    """A place in a store: a folder, a file or a pattern."""

    def __init__(self, url: str) -> None:
        self.url = url
        match = _URL.match(url)
        if match is None:
            raise RemoteError(f"{url}: expected a URL such as s3://bucket/folder")
        self.protocol = match[1].lower()
        try:
            import fsspec
        except ImportError:
            raise RemoteError(self._missing(_PACKAGES.get(self.protocol, "fsspec"))) from None
        try:
            self._files, self.path = fsspec.core.url_to_fs(url)
        except ImportError:
            raise RemoteError(self._missing(_PACKAGES.get(self.protocol, f"for {self.protocol}://"))) from None
        except Exception as error:
            raise RemoteError(f"{url}: {plain_reason(error)}") from None

    def files(self) -> dict[str, RemoteFile]:
        """All files below a folder, by their path from it; of a single file, itself under its name."""
        return self._with_store_errors(self._listed)

    def fitting(self) -> dict[str, RemoteFile]:
        """The files that a pattern fits, by their path from the folder before its first star."""

        def fitting() -> dict[str, RemoteFile]:
            root = self.pattern_root
            matches = self._files.glob(self.path, detail=True)
            return {
                _relative(path, root): _described(facts) for path, facts in matches.items() if facts["type"] == "file"
            }

        return self._with_store_errors(fitting)

    @property
    def pattern_root(self) -> str:
        """The folder before the first part of a pattern that has a star, a question mark or brackets."""
        parts = self.path.split("/")
        first = next((k for k, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts) - 1)
        return "/".join(parts[:first])

    def is_file(self) -> bool:
        """Is there a file of this name?"""
        return bool(self._with_store_errors(lambda: self._files.isfile(self.path)))

    def read(self, name: str, length: int) -> bytes:
        """The first bytes of a file below it."""
        content: bytes = self._with_store_errors(lambda: self._files.cat_file(self._path_of(name), start=0, end=length))
        return content

    def download(self, name: str, target: Path) -> None:
        """Fetch a file; it appears whole or not at all."""
        target.parent.mkdir(parents=True, exist_ok=True)
        staged = fetching_name(target)
        try:
            self._with_store_errors(lambda: self._files.get_file(self._path_of(name), str(staged)))
            staged.replace(target)
        finally:
            staged.unlink(missing_ok=True)

    def upload(self, source: Path, name: str, progress: Callable[[int], None] | None = None) -> None:
        """Copy a file there, in place of what had its name; `progress` is told how many bytes have gone."""
        from fsspec.callbacks import Callback

        class Told(Callback):  # type: ignore[misc]
            def call(self, *_: object, **__: object) -> None:
                if progress is not None:
                    progress(int(self.value))

        target = self._path_of(name)

        def put() -> None:
            if self.protocol in _WHOLE_OR_NOTHING:
                self._files.put_file(str(source), target, callback=Told())
                return
            self._files.makedirs(target.rpartition("/")[0], exist_ok=True)
            self._files.put_file(str(source), f"{target}.linnet-partial", callback=Told())
            self._files.mv(f"{target}.linnet-partial", target)

        self._with_store_errors(put)

    def remove(self, name: str) -> None:
        """Remove a file, where it is there."""

        def remove() -> None:
            with suppress(FileNotFoundError):
                self._files.rm_file(self._path_of(name))

        self._with_store_errors(remove)

    def _listed(self) -> dict[str, RemoteFile]:
        self._files.invalidate_cache()
        if self._files.isfile(self.path):
            return {self.path.rpartition("/")[2]: _described(self._files.info(self.path))}
        try:
            files = self._files.find(self.path, detail=True)
        except FileNotFoundError:
            return {}
        return {_relative(path, self.path): _described(facts) for path, facts in files.items()}

    def _path_of(self, name: str) -> str:
        path = self.path if not re.search(r"[*?\[]", self.path) else self.pattern_root
        is_itself = path.rpartition("/")[2] == name and self._files.isfile(path)
        return path if is_itself else f"{path.rstrip('/')}/{name}"

    def _with_store_errors(self, work: Callable[[], _Answer]) -> _Answer:
        """Whatever a library of a store raises becomes one line."""
        try:
            return work()
        except RemoteError:
            raise
        except FileNotFoundError:
            raise RemoteError(f"{self.url}: there is nothing of this name") from None
        except ImportError as error:
            raise RemoteError(self._missing(error.name or f"for {self.protocol}://")) from None
        except Exception as error:
            raise RemoteError(f"{self.url}: {plain_reason(error)}") from None

    def _missing(self, package: str) -> str:
        extra = _EXTRAS.get(package, "remote")
        return f"{self.protocol}:// needs the package {package}: pip install 'linnet[{extra}]'"


def fetching_name(path: Path) -> Path:
    """A hidden name for a file while it is fetched. Not a staged one: those that nobody locks are swept away."""
    return path.with_name(f".{path.name}.{os.urandom(6).hex()}.linnet-fetching")


def plain_reason(error: BaseException) -> str:
    """What a library says of a failure, in one line of bounded length."""
    words = " ".join(error_text(error).split()) or type(error).__name__
    return words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}…"


def _relative(path: str, root: str) -> str:
    return path[len(root) :].lstrip("/") if root and path.startswith(root) else path.lstrip("/")


def _described(facts: dict[str, Any]) -> RemoteFile:
    """Size and version of a file; stores have other words for the latter."""
    names = (
        "ETag",
        "etag",
        "md5Hash",
        "generation",
        "blob_id",
        "sha256",
        "LastModified",
        "mtime",
        "created",
        "updated",
    )
    version = next((str(facts[name]) for name in names if facts.get(name)), "")
    return RemoteFile(int(facts.get("size") or 0), version)
