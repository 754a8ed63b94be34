"""Folders whose names are classes, with or without a part for testing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from linnet.data.errors import DataError, reason
from linnet.data.left_out import printable

_TRAIN = ("train", "training")
_TEST = ("test", "testing", "val", "valid", "validation")


@dataclass(frozen=True)
class Listed:
    """The classes, and the files of each part (all, or for training and for testing) with their class's number."""

    names: tuple[str, ...]
    parts: list[list[tuple[Path, int]]]


def list_folders(place: Path) -> Listed:
    """Every file of every class; hidden ones are not looked at."""
    try:
        inside = _folders(place)
        by_name = {folder.name.lower(): folder for folder in inside}
        train = next((by_name[name] for name in _TRAIN if name in by_name), None)
        test = next((by_name[name] for name in _TEST if name in by_name), None)
        roots = [train, test] if train and test else [place]
        names = _names([folder for folder in roots if folder is not None])
        if len(names) == 0:
            raise DataError(f"{place}: expected a folder for each class with its images, found no folder")
        if len(names) == 1:
            raise DataError(f"{place}: a classifier needs two classes at least, found one: {names[0]}")
        return Listed(names, [_files(root, names) for root in roots if root is not None])
    except OSError as error:
        raise DataError(f"{error.filename}: cannot be read: {reason(error)}") from None


def _names(roots: list[Path]) -> tuple[str, ...]:
    """Sorted; numbers by their value, so that 10 comes after 9."""
    found = {folder.name for root in roots for folder in _folders(root)}
    for name in found:
        if name != printable(name):
            raise DataError(
                f"{printable(name)}: the name of this folder is not UTF-8, and it is to be a label: rename it"
            )
    return tuple(sorted(found, key=lambda name: (0, int(name), "") if name.isdecimal() else (1, 0, name)))


def _files(root: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    files = []
    for number, name in enumerate(names):
        folder = root / name
        mine = sorted(_below(folder)) if folder.is_dir() else []
        if not mine:
            raise DataError(
                f"{folder}: the folder of a class is empty or missing: put images in it, or remove the class"
            )
        files += [(file, number) for file in mine]
    return files


def _below(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and not file.name.startswith(".")]


def _folders(place: Path) -> list[Path]:
    return [each for each in place.iterdir() if each.is_dir() and not each.name.startswith(".")]
