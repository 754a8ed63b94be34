"""What only one recipe is asked for: a dataclass each, flat, so that `run.json` holds it among the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True)
class WarmOptions:
    """What a warm start takes from where. The fields from `donor_d_in` on are found out when it is realised."""

    donor: str  # a GGUF of the llama family
    init: str = "pca"  # a mode of `inheritance.MODES`
    lens: str | None = None  # a lens file to use instead of one's own
    tokens: Literal["exact", "pieces"] | None = (
        "pieces"  # rows of tokens the donor does not have: new, or from its pieces
    )
    rescale: bool = True
    train_table: bool = False
    donor_d_in: int | None = None
    donor_name: str | None = None
    donor_sha256: str | None = None
    explained_variance: float | None = None
    coverage: float | None = None
    taken: str | None = None  # what was taken from where, in a line


Options: TypeAlias = WarmOptions | None
OPTIONS: dict[str, type[WarmOptions]] = {"warm-start": WarmOptions}
