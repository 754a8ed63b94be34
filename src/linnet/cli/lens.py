"""`linnet lens`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from linnet.board import words
from linnet.cli.options import AsJson
from linnet.errors import UsageError


def lens(
    donor: Annotated[Path, Parameter(help="A GGUF of the llama family, quantised or not.")],
    /,
    *,
    d_model: int,
    out: Path,
    force: bool = False,
    json: AsJson = False,
) -> int:
    """Write the principal axes of a donor's embedding as a lens file, as Toy's `lens` files are.

    Parameters
    ----------
    d_model
        The width of the model it is for: at most the donor's.
    out
        The file to write.
    force
        Replace the file if it is there.
    """
    from linnet.cli.terminal import print_json
    from linnet.gguf import Lens, write_lens
    from linnet.recipes.donor import Donor
    from linnet.recipes.pca import principal_axes

    if out.exists() and not force:
        raise UsageError(f"{out} is there already; say --force to replace it")
    with Donor(donor) as opened:
        axes = principal_axes(opened.embedding, d_model)
        rows = opened.embedding.shape[0]
        write_lens(Lens(axes.proj_DW, opened.source), out)
        width = opened.width
    if json:
        facts = {"d_model": d_model, "donor_d_in": width, "rows": rows, "explained_variance": axes.explained}
        print_json({**facts, "path": str(out)})
        return 0
    print(
        f"{words.plain(out)}: {rows:,} rows, {width} → {d_model} wide, {axes.explained:.1%} of their variance explained"
        f" ({words.size(out.stat().st_size)})"
    )
    return 0
