"""What the metadata of a checkpoint say in short."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.board.checkpoint_kind import metadata_text
from linnet.gguf import GGUFFile, GGUFWriter, MetadataBlock


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e-6, "1e-06"), (10_000.0, "10000.0"), (0.1, "0.1"), (1 / 3, "0.33333334"), (-0.02, "-0.02")],
)
def test_a_float_of_32_bits_has_no_more_digits_than_it_holds(tmp_path: Path, value: float, text: str) -> None:
    file = GGUFWriter(MetadataBlock().text("general.architecture", "llama").f32("x", value).f32("large", 3.4e38))
    with GGUFFile.open(file.write(tmp_path / "a.gguf")) as opened:
        assert metadata_text(opened.metadata, "x", 100, 8, 100) == text
        assert metadata_text(opened.metadata, "large", 100, 8, 100).startswith("3.39999")
