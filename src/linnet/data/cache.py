"""The folder of prepared corpora: where it is, and how one of them comes to stand in it whole or not at all.

<cache>/<name>-<key>/        train.tokens, held_out.tokens, tokenizer.gguf, prepared.json
<cache>/.<key>.lock          held while that corpus is prepared; a second process waits for the first
<cache>/.<key>.<hex>.linnet-partial
                             the folder while it is made; renamed when complete
<cache>/hashes/<key>.json    content hashes of a corpus's files, or of prepared token sets, with the size and times
                             they had; its first line is a checksum of the rest
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from linnet import files
from linnet.data.corpus import Corpus
from linnet.data.errors import DataError, reason

_UNSETTLED = 2_000_000_000  # ns: a file changed so shortly before it was hashed may change again within one tick


def cache_folder(cache: str | os.PathLike[str] | None = None) -> Path:
    """The folder asked for, else `$LINNET_CACHE`, else the platform's place for such things."""
    chosen = cache if cache is not None else os.environ.get("LINNET_CACHE")
    if chosen:
        return files.expanded(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "linnet"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "linnet"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "linnet"


def teacher_logits_folder(root: Path) -> Path:
    """Where the caches of teachers' logits are, below the folder of prepared corpora."""
    return root / "taught"


class HashedFile(msgspec.Struct, array_like=True):
    """A file as it was when it was hashed."""

    size: int
    mtime: int
    ctime: int  # cannot be set back, as mtime can
    inode: int
    hashed_at: int
    digest: str


def content_hash(corpus: Corpus, root: Path, known: Sequence[HashedFile] = ()) -> str:
    """A hash of all that the corpus's files hold, in order. Files that did not change are not read again.

    `known`: each of them as another machine found it; taken where the file is the same here.
    """
    name = hashlib.blake2b(os.fsencode(corpus.files[0].path.resolve()), digest_size=16).hexdigest()
    return combined_hash(corpus, [file.digest for file in corpus_files_hashed(corpus, root, name, known)])


def combined_hash(corpus: Corpus, digests: Iterable[str]) -> str:
    """The hash of a corpus whose files have these digests."""
    whole = hashlib.blake2b(digest_size=32)
    for file, digest in zip(corpus.files, digests, strict=True):
        whole.update(f"{file.reading} {digest}\n".encode())
    return whole.hexdigest()


def corpus_files_hashed(corpus: Corpus, root: Path, name: str, known: Sequence[HashedFile] = ()) -> list[HashedFile]:
    """Each file of a corpus as it is now, with its digest."""
    paths = [file.path for file in corpus.files]
    try:
        return files_hashed(paths, root, name, known=dict(zip(map(_file_name, paths), known, strict=False)))
    except OSError as error:
        raise DataError(f"corpus {error.filename}: the file cannot be read: {reason(error)}") from None


def file_digests(
    paths: Sequence[Path], root: Path, name: str, digest: Callable[[Path], str] | None = None
) -> list[str]:
    """Each file's digest. What was hashed before and did not change since is not read again: `hashes/<name>.json`."""
    return [file.digest for file in files_hashed(paths, root, name, digest)]


def files_hashed(
    paths: Sequence[Path],
    root: Path,
    name: str,
    digest: Callable[[Path], str] | None = None,
    known: Mapping[str, HashedFile] | None = None,
) -> list[HashedFile]:
    """Each file as it is now, with its digest; `known`: what was found before, besides `hashes/<name>.json`."""
    path = root / "hashes" / f"{name}.json"
    stored: dict[str, HashedFile] = {}
    with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError):
        checksum, _, content = path.read_bytes().partition(b"\n")
        if checksum == _checksum(content):  # a flipped bit here would make another corpus of the same files
            stored = msgspec.json.decode(content, type=dict[str, HashedFile])
    known = {**(known or {}), **stored}
    fresh: dict[str, HashedFile] = {}
    hashed = []
    for file in paths:
        name = _file_name(file)
        try:
            fresh[name] = _hash(file, known.get(name), digest or _whole)
        except OSError as error:
            error.filename = str(file)  # a failed read does not name it
            raise
        hashed.append(fresh[name])
    if fresh != stored:
        with suppress(OSError):  # only time is lost
            path.parent.mkdir(parents=True, exist_ok=True)
            content = msgspec.json.encode(fresh)
            files.write_file(path, _checksum(content) + b"\n" + content, sync=False)
    return hashed


def _file_name(path: Path) -> str:
    return os.fsencode(path.resolve()).decode("utf-8", "backslashreplace")


def _hash(path: Path, known: HashedFile | None, digest: Callable[[Path], str]) -> HashedFile:
    now = path.stat()
    times = (now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino)
    if known is not None:
        settled = max(known.mtime, known.ctime) + _UNSETTLED < known.hashed_at
        if settled and (known.size, known.mtime, known.ctime, known.inode) == times:
            return known
    hashed_at = time.time_ns()
    return HashedFile(*times, hashed_at, digest(path))


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).hexdigest().encode()


def _whole(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


@contextmanager
def folder_in_making(root: Path, target: Path, key: str, usable: Callable[[], bool]) -> Iterator[Path | None]:
    """A folder to fill, which becomes `target` when the block ends well; None when another process has made it.

    A `target` that is there but not `usable` is removed first. Whatever ends the block otherwise, nothing remains; what
    a killed process left is cleared away by the next.
    """
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = os.open(root / f".{key}.lock", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise DataError(f"cache {root}: it cannot be written: {reason(error)}; choose another with `cache`") from None
    try:
        alone = files.lock(lock, wait=None)  # None: there are no locks here, and others may prepare the same
        if usable():
            yield None
            return
        _remove(root, target, key)
        for leftover in root.glob(f".{key}.*partial") if alone else ():
            shutil.rmtree(leftover, ignore_errors=True)
        folder = files.staged_name(root / key)
        try:
            folder.mkdir()
            yield folder
            _publish(folder, target)
        except OSError as error:
            raise DataError(_failure(root, error)) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _remove(root: Path, target: Path, key: str) -> None:
    """Take a folder out of use at one stroke: a process that has its files mapped keeps them."""
    aside = files.staged_name(root / key)
    try:
        target.rename(aside)
    except FileNotFoundError:
        return
    except OSError as error:
        raise DataError(f"{target}: it is damaged and cannot be replaced: {reason(error)}; delete it") from None
    if aside.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
    else:
        aside.unlink(missing_ok=True)


def _publish(folder: Path, target: Path) -> None:
    files.sync_folder(folder)
    try:
        folder.rename(target)
    except OSError:
        if not target.exists():  # where there are no locks, another process may have been first with the same
            raise
    files.sync_folder(target.parent)


def _failure(root: Path, error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"cache {root}: the disk is full; nothing was kept. Make room or choose another with `cache`"
    return f"cache {root}: it cannot be written to: {reason(error)}; nothing was kept"


def link_or_copy(source: Path, target: Path) -> None:
    """Give a file a second name; where the file system has no links, a copy of it."""
    try:
        os.link(source, target)
    except FileNotFoundError as error:
        raise DataError(f"{source}: the file cannot be read: {reason(error)}") from None
    except OSError:
        shutil.copyfile(source, target)
