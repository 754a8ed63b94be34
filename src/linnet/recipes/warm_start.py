"""Warm start: a new model begins with what a donor GGUF knows, of its embedding or of its layers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from linnet.errors import LinnetError, UsageError
from linnet.gguf import read_lens
from linnet.models import Config, Llama, LlamaConfig, ViTConfig, put_lens
from linnet.models.lens import Lens, fit_lens
from linnet.recipes.donor import Donor, DonorError, check_rows, donor_errors
from linnet.recipes.from_scratch import FromScratch
from linnet.recipes.inheritance import Asked, Init, Taken, take
from linnet.recipes.job import Job
from linnet.recipes.options import WarmOptions
from linnet.recipes.pca import principal_axes
from linnet.recipes.token_rows import TokenRows, find_rows, same_rows
from linnet.train.hardware import Hardware
from linnet.train.protocols import RunData
from linnet.train.settings import TrainSettings
from linnet.train.step import LossFunction

if TYPE_CHECKING:
    from numpy.typing import NDArray


class WarmStart(FromScratch):
    """The recipe with a window between allocating and building, in which a donor's values may come in.

    recipe = WarmStart(settings, hardware, init="pca")
    recipe.realize_scratch(config, donor_d_in=WarmStart.donor_embed_width("donor.gguf"))   # opens the window
    recipe.realize_warm("donor.gguf")
    recipe.build()                                                                         # closes it
    result = recipe.step(batch, lr)

    With `donor_d_in` the embedding is as wide as the donor's and not trained (unless `train_table`), and a trained
    lens brings its rows to the model's width. `init` decides what `realize_warm` takes: docs/warm-start.md.
    """

    name = "warm-start"

    def __init__(
        self,
        settings: TrainSettings,
        hardware: Hardware,
        *,
        init: str = "pca",
        lens: str | os.PathLike[str] | None = None,
        tokens: Literal["exact", "pieces"] | None = "pieces",
        layers: Literal["even", "first"] = "even",
        rescale: bool = True,
        train_table: bool = False,
        init_scale: float = 1.0,
        loss: LossFunction | None = None,
    ) -> None:
        super().__init__(settings, hardware, init_scale=init_scale, loss=loss)
        self.init = Init.parse(init)
        # What was asked for, and what is found out on the way: it goes into run.json and the GGUF.
        self.options = WarmOptions(
            donor="",
            init=str(self.init),
            lens=None if lens is None else os.fspath(lens),
            tokens=tokens,
            layers=layers,
            rescale=rescale,
            train_table=train_table,
        )
        self._window: Literal["not opened", "open", "closed"] = "not opened"
        self._uploaded = False

    @staticmethod
    def donor_embed_width(path: str | os.PathLike[str]) -> int:
        """The width of a donor's embedding, to be given to `realize_scratch`."""
        with Donor(path) as donor:
            return donor.width

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the model comes from, for its checkpoints."""
        options = self.options
        if self._window == "not opened":
            return {}
        known = {
            "donor": options.donor_name,
            "donor_sha256": options.donor_sha256,
            "init": options.init,
            "explained_variance": options.explained_variance,
            "coverage": options.coverage,
        }
        return {key: value for key, value in known.items() if value is not None}

    def realize(self, config: Config) -> None:
        """`realize_scratch` without a lens."""
        self.realize_scratch(config)

    def realize_scratch(self, config: Config, donor_d_in: int = 0) -> None:
        """Allocate and initialise the model as if there were no donor, and open the window."""
        if self._window != "not opened":
            raise LinnetError(f"realize_scratch() was called already and the window is {self._window}; call it once")
        if self.init.has_lens and not donor_d_in:
            raise UsageError(
                f"init {self.init} has a lens, which needs the donor's width: realize_scratch(config,"
                " donor_d_in=WarmStart.donor_embed_width(path))"
            )
        if donor_d_in and not (self.init.has_lens or self.init.kind == "scratch"):
            raise UsageError(f"init {self.init} has no lens: call realize_scratch(config) without donor_d_in")
        super().realize(config)
        if donor_d_in:
            put_lens(self.model, donor_d_in, seed=self._settings.seed, train_table=self.options.train_table)
        self.options = replace(self.options, donor_d_in=donor_d_in or None)
        self._window = "open"

    def realize_warm(
        self, donor: str | os.PathLike[str] | Donor, tokenizer: Mapping[str, object] | None = None
    ) -> None:
        """Read a donor and take over what `init` says; one that is open already stays open.

        `tokenizer` has the `tokenizer.*` keys of the vocabulary to be trained on: where it is another than the
        donor's, rows are found by the text of the tokens. Without it row i is the donor's row i.
        """
        self._require_window("realize_warm()")
        if self.init.kind == "scratch":
            raise UsageError(
                "init scratch takes nothing from a donor; leave out realize_warm(), or choose another init"
            )
        with donor_errors(), nullcontext(donor) if isinstance(donor, Donor) else Donor(donor) as opened:
            rows = self._rows(opened, tokenizer)
            take_in = self._see_through_lens if self.init.has_lens else self._take_over
            words = take_in(opened, rows)
            self.options = replace(
                self.options,
                donor_name=opened.name,
                donor_sha256=opened.sha256(),
                coverage=rows.coverage,
                taken=words,
            )

    def upload_donor(self, table_VW: NDArray[np.float32] | Sequence[float], n_floats: int | None = None) -> None:
        """Put rows that are read already into the table behind the lens: [vocab, donor_d_in], or row after row, flat.

        `n_floats` says how many numbers of a flat buffer count, where it is longer than the table.
        """
        self._require_window("upload_donor()")
        self._require_lens("upload_donor()")
        target = self.model.token_embd.weight
        rows_VW = np.asarray(table_VW, np.float32)
        if rows_VW.ndim == 1:
            rows_VW = _rows_of(rows_VW, n_floats, target.shape)
        elif n_floats is not None and n_floats != rows_VW.size:
            raise UsageError(
                f"the donor's rows: n_floats is for a flat buffer; expected {rows_VW.size}, found {n_floats}"
            )
        _check_shape("the donor's rows", rows_VW.shape, target.shape, "[vocab, donor_d_in]")
        check_rows(rows_VW)
        target.data.copy_(torch.from_numpy(np.ascontiguousarray(rows_VW)))
        self._uploaded = True

    def upload_lens(self, proj_DW: NDArray[np.float32]) -> None:
        """Put a projection into the lens: [d_model, donor_d_in]."""
        self._require_window("upload_lens()")
        lens = self._require_lens("upload_lens()")
        _check_shape("the lens", proj_DW.shape, lens.proj.weight.shape, "[d_model, donor_d_in]")
        if not np.isfinite(proj_DW).all():
            raise UsageError("the lens has numbers that are not finite: expected none, found NaN or infinity")
        lens.proj.weight.data.copy_(torch.from_numpy(np.ascontiguousarray(proj_DW, np.float32)))

    def build(self) -> None:
        """Close the window: fit what is seen through a lens to the model, make optimiser and step."""
        self._require_window("build()")
        if self.model.lens is not None and self._uploaded and self.options.rescale:
            fit_lens(self.model)
        super().build()
        self._window = "closed"

    def _rows(self, donor: Donor, tokenizer: Mapping[str, object] | None) -> TokenRows:
        vocab = self.model.config.vocab
        if tokenizer is None:
            return same_rows(vocab)
        rows = find_rows(donor.metadata, tokenizer, pieces=self.options.tokens != "exact", path=donor.path)
        if not rows.same and self.options.tokens is None:
            raise DonorError(
                "the corpus has another tokenizer than the donor",
                path=donor.path,
                place="metadata 'tokenizer.ggml.tokens'",
                expected="the same tokens; or tokens='pieces' or 'exact', to find rows by their text",
                found=rows.words,
            )
        return rows

    def _see_through_lens(self, donor: Donor, rows: TokenRows) -> str:
        if donor.width != self.model.token_embd.weight.shape[1]:
            raise DonorError(
                "the donor's width is not that of the lens",
                path=donor.path,
                place="metadata 'llama.embedding_length'",
                expected=f"{self.model.token_embd.weight.shape[1]}, the donor_d_in of realize_scratch()",
                found=str(donor.width),
            )
        vocab, D = self.model.config.vocab, self.model.config.d_model
        table = rows.take(donor.table(vocab if rows.same else None), self._settings.seed)
        if self.options.lens is not None:
            self.upload_lens(_read_lens(self.options.lens, (D, donor.width)))
            how = f"the lens {self.options.lens}"
        elif self.init.kind == "pca":
            axes = principal_axes(table, D)
            self.upload_lens(axes.proj_DW)
            self.options = replace(self.options, explained_variance=axes.explained)
            how = f"its {D} principal axes, which hold {axes.explained:.1%} of the variance"
        else:
            how = "a random projection"
        self.upload_donor(table)
        frozen = "trained" if self.options.train_table else "frozen"
        return f"embedding {donor.width} wide, {frozen}, seen through {how} ({rows.words}); layers are new"

    def _take_over(self, donor: Donor, rows: TokenRows) -> str:
        config = self.model.config
        if not isinstance(config, LlamaConfig):
            raise UsageError(f"init {self.init} makes a llama of a llama, found a {config.arch}; choose pca or warm")
        asked = Asked(self.init.number, rows, self.options.layers, self.options.rescale, self._settings.seed)
        taken = take(self.init, donor, config, asked)
        self._put(taken)
        return taken.words

    @torch.no_grad()
    def _put(self, taken: Taken) -> None:
        parameters = dict(self.model.named_parameters())
        for name, array in taken.tensors.items():
            tensor = torch.from_numpy(array)
            if name == "rope_freqs.weight":
                assert isinstance(self.model, Llama)
                self.model.use_divisors(tensor)
            else:
                parameters[name].copy_(tensor)

    def _require_window(self, call: str) -> None:
        if self._window == "not opened":
            raise LinnetError(f"{call} came before realize_scratch(config), which opens the window for it")
        if self._window == "closed":
            again = "a second time" if call == "build()" else "after build()"
            raise LinnetError(f"{call} came {again}; the window is closed, and the model is being trained as it is")

    def _require_lens(self, call: str) -> Lens:
        if self.model.lens is None:
            raise LinnetError(f"{call} needs a lens: realize_scratch(config, donor_d_in=…) makes one")
        return self.model.lens


def from_job(job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[WarmStart, Job]:
    """The recipe of a job, built. Going on needs neither donor nor lens: the state holds what came of them."""
    options = job.options
    assert isinstance(options, WarmOptions) and not isinstance(job.model, ViTConfig)
    recipe = WarmStart(job.settings, hardware, init=options.init, init_scale=job.init_scale, loss=job.loss)
    recipe.options = replace(options, init=str(recipe.init))
    if resumed:
        recipe.realize_scratch(job.model, options.donor_d_in or 0)
    elif recipe.init.kind != "scratch":
        with job.open_donor as donor:
            recipe.realize_scratch(job.model, donor.width if recipe.init.has_lens else 0)
            recipe.realize_warm(donor, data.vocabulary)
    else:
        recipe.realize_scratch(job.model)
    recipe.build()
    return recipe, replace(job, options=recipe.options)


def _read_lens(path: str | os.PathLike[str], wanted: tuple[int, int]) -> NDArray[np.float32]:
    proj_DW = read_lens(path).proj
    if proj_DW.shape != wanted:
        raise DonorError(
            "the lens is of another shape",
            path=path,
            place="tensor 'lens.proj.weight'",
            expected=f"{list(wanted)}, [d_model, donor width]",
            found=str(list(proj_DW.shape)),
        )
    return proj_DW


def _rows_of(flat: NDArray[np.float32], n_floats: int | None, wanted: torch.Size) -> NDArray[np.float32]:
    """A flat buffer as rows; it must hold exactly as many numbers as the table, or `n_floats` of them."""
    count = len(flat) if n_floats is None else n_floats
    if count != wanted.numel() or count > len(flat):
        found = f"{len(flat):,}" if n_floats is None else f"n_floats {n_floats:,} of a buffer of {len(flat):,}"
        raise UsageError(
            f"the donor's rows: the flat buffer is of another size; expected {wanted.numel():,} numbers,"
            f" {list(wanted)} as [vocab, donor_d_in], found {found}"
        )
    return flat[:count].reshape(tuple(wanted))


def _check_shape(what: str, found: tuple[int, ...], wanted: torch.Size, words: str) -> None:
    if tuple(found) != tuple(wanted):
        raise UsageError(f"{what}: the shape is wrong; expected {list(wanted)}, {words}, found {list(found)}")
