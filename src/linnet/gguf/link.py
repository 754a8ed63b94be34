"""`latest` and `best`: names in a folder that point at one of its files."""

from __future__ import annotations

import os
from pathlib import Path

from linnet.gguf.errors import GGUFError, quoted
from linnet.gguf.staging import StagedFile, staged_name, sync_folder

# A pointer that is a text file holds one file name; anything longer is a file in its own right.
_LONGEST_NAME = 4096


def point_link(link: str | os.PathLike[str], target: str) -> None:
    """Make `link` mean the file `target` in the same folder, in one step: readers see the old or the new.

    A relative symlink, so the folder can be moved or copied. Where the system refuses links (Windows without
    the right, some file systems), a small text file that holds the name; `resolve_link` reads both.
    """
    link = Path(link)
    if not target or target != Path(target).name:
        raise GGUFError(
            "a link points within its folder",
            path=link,
            place="link",
            expected="a name",
            found=quoted(target),
        )
    for _ in range(8):
        staged = staged_name(link)
        try:
            staged.symlink_to(target)
        except (OSError, NotImplementedError):
            with StagedFile(link) as out:
                out.write(f"{target}\n".encode())
            return
        try:
            staged.replace(link)
        except FileNotFoundError:  # another writer swept it away between the two calls
            continue
        except OSError as error:
            staged.unlink(missing_ok=True)
            reason = error.strerror or str(error)
            expected = "a name that can be replaced"
            raise GGUFError(
                "cannot be replaced", path=link, place="link", expected=expected, found=reason
            ) from None
        sync_folder(link.parent)
        return
    raise GGUFError(
        "cannot be replaced", path=link, place="link", expected="a quiet folder", found="other writers"
    )


def resolve_link(path: str | os.PathLike[str]) -> Path:
    """The file that `path` means: itself, or where a symlink or a text pointer leads."""
    path = Path(path)
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LONGEST_NAME:
        return _existing(path.resolve() if path.is_symlink() else path, path)
    with path.open("rb") as file:
        content = file.read(_LONGEST_NAME)
    if content.startswith(b"GGUF"):
        return path
    try:
        name = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        return path
    if not name or name != Path(name).name or any(ord(letter) < 32 for letter in name):
        return path
    return _existing(path.with_name(name), path)


def _existing(target: Path, link: Path) -> Path:
    if not target.exists():
        found = "nothing" if target == link else f"a pointer to {target.name}, which is not there"
        raise GGUFError("does not lead to a file", path=link, place="link", expected="a file", found=found)
    return target
