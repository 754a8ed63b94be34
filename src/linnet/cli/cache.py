"""`linnet data list` and `linnet data rm`: what the cache of prepared corpora holds."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.housekeeping import agreed
from linnet.cli.options import AsJson
from linnet.cli.printing import print_json, print_table
from linnet.errors import UsageError


def list(*, cache: Path | None = None, json: AsJson = False) -> int:
    """List the prepared corpora of the cache, the newest first.

    Args:
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
    """
    from linnet.data.cache import cache_folder
    from linnet.data.cached import cached_corpora, fetched_copies, folder_size, leftovers, teacher_logits_folders

    root = cache_folder(cache)
    entries = cached_corpora(root)
    leftover_bytes = sum(folder_size(path) for path in leftovers(root))
    if json:
        names = ("id", "corpus", "vocab", "tokens", "size", "made", "problem")
        print_json([{name: getattr(entry, name) for name in names} for entry in entries])
        return 0
    if not entries:
        print(f"the cache {root} holds no prepared corpus; `linnet data prepare CORPUS` makes one")
    else:
        print_table(
            ("id", "corpus", "vocab", "tokens", "size", "age"),
            [
                (
                    entry.id,
                    words.shorten(entry.problem or Path(entry.corpus).name, 24),
                    f"{entry.vocab:,}" if entry.vocab else "",
                    words.compact(entry.tokens) if entry.tokens else "",
                    words.size(entry.size),
                    words.duration(max(0.0, time.time() - entry.made)),
                )
                for entry in entries
            ],
            right=(2, 3, 4, 5),
        )
        print(f"{len(entries)} in {root}: {words.size(sum(entry.size for entry in entries))}")
    if leftover_bytes:
        print(
            f"and {words.size(leftover_bytes)} that killed preparations left; `linnet data rm --all` removes that too"
        )
    if logits_bytes := sum(folder_size(path) for path in teacher_logits_folders(root)):
        print(f"and {words.size(logits_bytes)} of what teachers said; `linnet data rm --all` removes that too")
    if copies := sum(folder_size(path) for path in fetched_copies(root)):
        print(f"and {words.size(copies)} of corpora fetched from elsewhere; `linnet data rm --all` removes that too")
    return 0


def rm(
    *names: Annotated[str, Parameter(name="ID…", help="An id, its beginning, or the corpus as it was named.")],
    older: str | None = None,
    all: bool = False,
    yes: Annotated[bool, Parameter(name=["--yes", "-y"], negative=(), help="Do not ask.")] = False,
    cache: Path | None = None,
) -> int:
    """Remove prepared corpora from the cache; the next training on one prepares it again.

    Args:
        older: Only those made longer ago: 30d, 12h, 2w.
        all: All of them, and what killed preparations left.
        cache: Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
    """
    from linnet.data.cache import cache_folder
    from linnet.data.cached import (
        age,
        cached_corpora,
        chosen,
        fetched_copies,
        folder_size,
        leftovers,
        remove,
        teacher_logits_folders,
    )

    if not names and older is None and not all:
        raise UsageError("data rm needs to know which: an id of `linnet data list`, --older 30d, or --all")
    if names and all:
        raise UsageError("data rm --all takes no names: give one or the other")
    root = cache_folder(cache)
    entries = chosen(cached_corpora(root), names, None if older is None else age(older))
    unlisted = [*leftovers(root), *fetched_copies(root), *teacher_logits_folders(root)] if all and older is None else []
    size = sum(entry.size for entry in entries) + sum(map(folder_size, unlisted))
    if not entries and not unlisted:
        print("nothing to remove")
        return 0
    corpora = f"{len(entries)} prepared {'corpus' if len(entries) == 1 else 'corpora'}"
    corpora += f" and {len(unlisted)} leftover{'s' if len(unlisted) > 1 else ''}" if unlisted else ""
    if not yes:
        for entry in entries:
            print(f"  {words.plain(entry.id)}  {words.size(entry.size)}")
        if not agreed(f"remove {corpora}, {words.size(size)}? [y/N] ", "data rm"):
            print("nothing was removed")
            return 1
    remove(root, entries)
    for path in unlisted:
        shutil.rmtree(path, ignore_errors=True)
    print(f"removed {corpora}: {words.size(size)}")
    return 0
