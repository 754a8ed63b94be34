"""Warm start: a new model begins with what a donor GGUF knows, of its embedding or of its layers."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from linnet import models
from linnet.architectures import LlamaConfig, ViTConfig
from linnet.data.corpus import find_corpus
from linnet.errors import LinnetError, UsageError
from linnet.gguf import read_lens
from linnet.recipes.donor import Donor, DonorError, check_rows, donor_errors, principal_axes
from linnet.recipes.flags import (
    FilePath,
    Flag,
    FlagGroups,
    ModelName,
    changed_fields,
    config_flags,
    fill,
    flags_of,
    with_model_files,
)
from linnet.recipes.from_scratch import TEXT_FLAGS, FromScratch, text_job
from linnet.recipes.job import Job, TeacherOptions, TextData, settings_flags, teacher_of
from linnet.recipes.recipe import INIT_SCALE, put
from linnet.recipes.teacher import TeacherFile
from linnet.recipes.token_rows import TokenRows, find_rows, same_rows
from linnet.recipes.transfer import Init, Transfer, shape_from
from linnet.train.settings import Count, TrainSettings

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from linnet.models import Config, Lens
    from linnet.train import Hardware, RunData
    from linnet.train.step import LossFunction

_SHAPE = config_flags(
    [LlamaConfig],
    leave_out=("qkv_bias",),
    vocab="Train a vocabulary of so many tokens on the corpus; by default it is the donor's.",
    ctx="Tokens of a sequence; 256 by default.",
    head_dim="Size of a head.",
    untied="Give the output a matrix of its own; a lens needs one and has it.",
)


_TOKENS = Flag(
    "tokens",
    Count | Literal["pieces", "exact"],
    "pieces",
    "With another tokenizer than the donor's: tokens it does not have begin as the mean of their pieces, or anew"
    " (exact). A number is a budget: train on so many tokens instead of a number of steps.",
)


@dataclass(frozen=True)
class WarmOptions:
    """What a warm start takes from where. The fields from `donor_d_in` on are found out when it is realised.

    Args:
        donor: A MODEL of the llama family, quantised or not.
        init: select: layers, heads and channels of a larger donor; pca or warm: its embedding through a lens; embed:
            the rows of one as wide; inherit:K: its first K layers; widen:N: N times as wide, same function; full: all
            of it; scratch: nothing.
        lens: A lens file (linnet lens) for pca or warm to begin with.
        tokens: With another vocabulary than the donor's (`vocab`, `tokenizer`): tokens it does not have begin as the
            mean of their pieces, or anew.
        layers: Which layers select takes: evenly spread ones, or the first ones.
        rescale: Centre embedding rows and give every dimension one spread; `no_rescale` leaves them as they are in the
            donor.
        train_table: Train the table behind the lens too.
    """

    donor: ModelName
    init: str = "select"
    lens: FilePath | None = None
    tokens: Literal["pieces", "exact"] | None = "pieces"  # None: all tokens must be the donor's
    layers: Literal["even", "first"] = "even"
    rescale: bool = True
    train_table: bool = False
    donor_d_in: int | None = None
    donor_name: str | None = None
    donor_sha256: str | None = None
    explained_variance: float | None = None
    coverage: float | None = None
    donor_rows: int | None = None  # of another vocabulary than the donor's: rows that are the donor's as they are
    mean_rows: int | None = None  # means of the donor's rows
    new_rows: int | None = None
    taken: str | None = None  # what was taken from where, in a line


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
    flags: ClassVar[FlagGroups] = {
        "Donor": tuple(_TOKENS if flag.name == "tokens" else flag for flag in flags_of(WarmOptions)),
        "Model": (*_SHAPE, replace(INIT_SCALE, help="Times the usual size of those first weights that are new.")),
        **TEXT_FLAGS,
        "Training": settings_flags(TrainSettings, leave_out=("tokens",)),
    }
    data_types = (TextData,)
    options_type = WarmOptions

    def __init__(
        self,
        settings: TrainSettings,
        hardware: Hardware,
        *,
        init: str = "pca",
        lens: str | os.PathLike[str] | None = None,
        tokens: Literal["pieces", "exact"] | None = "pieces",
        layers: Literal["even", "first"] = "even",
        rescale: bool = True,
        train_table: bool = False,
        init_scale: float = 1.0,
        loss: LossFunction | None = None,
    ) -> None:
        super().__init__(settings, hardware, init_scale=init_scale, loss=loss)
        self.init = Init.parse(init)
        path = None if lens is None else os.fspath(lens)
        # What was asked for, and what is found out on the way: it goes into run.json and the GGUF.
        self.options = WarmOptions("", str(self.init), path, tokens, layers, rescale, train_table)
        self._uploaded = False

    @classmethod
    def job(cls, values: Mapping[str, Any]) -> Job:
        """A shape that follows from the donor's where it is not given; the donor travels in the job, open."""
        init = Init.parse(values["init"])
        if values["lens"] is not None and not init.has_lens:
            raise UsageError(f"`lens` does not go with `init={init}`: only pca and warm look through one")
        if values["train_table"] and not init.has_lens:
            raise UsageError(f"`train_table` does not go with `init={init}`: only pca and warm have a table")
        if values["vocab"] is not None and values["tokenizer"] is not None:
            raise UsageError(
                "`vocab` does not go with `tokenizer`: the one trains a vocabulary on the corpus, the other takes it"
                " from a file; leave out one of them"
            )
        import torch  # noqa: F401 (who has none is told so before a donor is looked for)

        values = with_model_files(cls.flags, values)
        donor = Donor(values["donor"])
        try:
            config = shape_from(donor.config, init, **changed_fields(_SHAPE, values))
            budget = values["tokens"] if isinstance(values["tokens"], int) else None
            rows = _TOKENS.default if budget is not None else values["tokens"]
            options = fill(WarmOptions, {**values, "init": str(init), "tokens": rows})
            if (teacher := teacher_of(values)) is not None:
                _check_teacher(teacher, donor, values)
            if values["vocab"] is None:
                source = {"tokenizer": values["tokenizer"] or values["donor"]}
            else:
                _check_vocab(donor, values)
                source = {"pre": values["pre"] or donor.pre}
            values = {**values, **source, "tokens": budget}
            return text_job(cls.name, config, values, options=options, donor=donor)
        except BaseException:
            donor.close()
            raise

    @classmethod
    def from_job(cls, job: Job, data: RunData, hardware: Hardware, resumed: bool) -> tuple[WarmStart, Job]:
        """The recipe of a job, built. Going on needs neither donor nor lens: the state holds what came of them."""
        options = job.options
        assert isinstance(options, WarmOptions) and not isinstance(job.model, ViTConfig)
        recipe = cls(job.settings, hardware, init=options.init, init_scale=job.init_scale, loss=job.loss)
        recipe.options = replace(options, init=str(recipe.init))
        if resumed or recipe.init.kind == "scratch":
            recipe.realize_scratch(job.model, options.donor_d_in or 0)
        else:
            with Donor(options.donor) if job.donor is None or job.donor.closed else job.donor as donor:
                recipe.realize_scratch(job.model, donor.width if recipe.init.has_lens else 0)
                recipe.realize_warm(donor, data.vocabulary)
        recipe.take_teacher(job)
        recipe.build()
        return recipe, replace(job, options=recipe.options)

    @classmethod
    def begins_from_seed(cls, job: Job) -> bool:
        """Only where nothing of the donor is taken but its tokenizer."""
        assert isinstance(job.options, WarmOptions)
        return Init.parse(job.options.init).kind == "scratch" and not job.options.donor_d_in

    @staticmethod
    def _is_pretrained(job: Job) -> bool:
        """With `full` and `widen` the donor goes on learning; the others begin with a part of it."""
        assert isinstance(job.options, WarmOptions)
        return Init.parse(job.options.init).kind in ("full", "widen")

    @staticmethod
    def donor_embed_width(path: str | os.PathLike[str]) -> int:
        """The width of a donor's embedding, to be given to `realize_scratch`."""
        with Donor(path) as donor:
            return donor.width

    @property
    def origin(self) -> Mapping[str, Any]:
        """Where the model comes from, for its checkpoints."""
        options = self.options
        known = {
            "donor": options.donor_name,
            "donor_sha256": options.donor_sha256,
            "init": options.init,
            "explained_variance": options.explained_variance,
            "coverage": options.coverage,
        }
        return {**{key: value for key, value in known.items() if value is not None}, **super().origin}

    @property
    def remark(self) -> str | None:
        """What was taken from where; of `scratch`, which model it is like."""
        if self.init.kind == "scratch" and self.config.tied:
            return (
                "from scratch: nothing of the donor but its tokenizer; head and embedding are one matrix, while pca and"
                " warm have a head of their own: to compare with these, give `untied`"
            )
        return None if self.options.taken is None else f"from {self.options.donor_name}: {self.options.taken}"

    def realize(self, config: Config) -> None:
        """`realize_scratch` without a lens."""
        self.realize_scratch(config)

    def realize_scratch(self, config: Config, donor_d_in: int = 0) -> None:
        """Allocate and initialise the model as if there were no donor, and open the window."""
        if self._window != "not opened":
            raise LinnetError("realize_scratch() was called a second time: call it once, before all others")
        if self.init.has_lens and not donor_d_in:
            raise UsageError(
                f"init {self.init} has a lens, which needs the donor's width: realize_scratch(config,"
                " donor_d_in=WarmStart.donor_embed_width(path))"
            )
        if donor_d_in and not (self.init.has_lens or self.init.kind == "scratch"):
            raise UsageError(f"init {self.init} has no lens: call realize_scratch(config) without donor_d_in")
        super().realize(config)
        if donor_d_in:
            models.put_lens(self.model, donor_d_in, seed=self._settings.seed, train_table=self.options.train_table)
        self.options = replace(self.options, donor_d_in=donor_d_in or None)

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
            summary = self._use_lens(opened, rows) if self.init.has_lens else self._transfer_layers(opened, rows)
            self.options = replace(
                self.options,
                donor_name=opened.name,
                donor_sha256=opened.sha256(),
                coverage=rows.coverage,
                taken=summary,
            )
            if not rows.same:
                self.options = replace(
                    self.options,
                    donor_rows=rows.own,
                    mean_rows=rows.means,
                    new_rows=rows.new,
                    taken=f"{summary}; {_in_place_of(opened, rows)}",
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
            rows_VW = _rows_of(rows_VW, n_floats, tuple(target.shape))
        elif n_floats is not None and n_floats != rows_VW.size:
            raise UsageError(
                f"the donor's rows: n_floats is for a flat buffer; expected {rows_VW.size}, found {n_floats}"
            )
        _check_shape("the donor's rows", rows_VW.shape, target.shape, "[vocab, donor_d_in]")
        check_rows(rows_VW)
        _copy(rows_VW, target)
        self._uploaded = True

    def upload_lens(self, proj_DW: NDArray[np.float32]) -> None:
        """Put a projection into the lens: [d_model, donor_d_in]."""
        self._require_window("upload_lens()")
        target = self._require_lens("upload_lens()").proj.weight
        _check_shape("the lens", proj_DW.shape, target.shape, "[d_model, donor_d_in]")
        if not np.isfinite(proj_DW).all():
            raise UsageError("the lens has numbers that are not finite (NaN or infinite): give one without them")
        _copy(proj_DW, target)

    def build(self) -> None:
        """Close the window: fit what is seen through a lens to the model, make optimizer and step."""
        from linnet.models.lens import fit_lens

        self._require_window("build()")
        if self.model.lens is not None and self._uploaded and self.options.rescale:
            fit_lens(self.model)
        super().build()

    def _rows(self, donor: Donor, tokenizer: Mapping[str, object] | None) -> TokenRows:
        if tokenizer is None:
            return same_rows(self.config.vocab)
        rows = find_rows(donor.metadata, tokenizer, pieces=self.options.tokens != "exact", path=donor.path)
        if not rows.same and self.options.tokens is None:
            raise donor.error(
                "the corpus has another tokenizer than the donor",
                "metadata 'tokenizer.ggml.tokens'",
                "the same tokens; or tokens='pieces' or 'exact', to find rows by their text",
                rows.words,
            )
        return rows

    def _use_lens(self, donor: Donor, rows: TokenRows) -> str:
        vocab, D, width = self.config.vocab, self.config.d_model, self.model.token_embd.weight.shape[1]
        if donor.width != width:
            raise donor.error(
                "the donor's width is not that of the lens",
                "metadata 'llama.embedding_length'",
                f"{width}, the donor_d_in of realize_scratch()",
                str(donor.width),
            )
        table = rows.take(donor.table(vocab if rows.same else None), self._settings.seed)
        if self.options.lens is not None:
            self.upload_lens(_read_lens(self.options.lens, (D, width)))
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
        return f"embedding {width} wide, {frozen}, seen through {how} ({rows.words}); layers are new"

    def _transfer_layers(self, donor: Donor, rows: TokenRows) -> str:
        import torch

        if not isinstance(self.config, LlamaConfig):
            raise UsageError(
                f"init {self.init} makes a llama of a llama's layers, found a {self.config.arch}; choose pca or warm"
            )
        options = self.options
        transfer = Transfer(donor, self.config, rows, options.layers, options.rescale, self._settings.seed)
        parts = transfer.take(self.init)
        put(self.model, {name: torch.from_numpy(array) for name, array in parts.tensors.items()})
        return parts.words

    @property
    def _window(self) -> str:
        return "not opened" if self._trained is None else "open" if self._step is None else "closed"

    def _require_window(self, call: str) -> None:
        if self._window == "not opened":
            raise LinnetError(f"{call} was called before there is a model: call realize_scratch(config) first")
        if self._window == "closed":
            how_often = "a second time" if call == "build()" else "after build()"
            between = "a donor's values are taken between realize_scratch() and build()"
            raise LinnetError(f"{call} was called {how_often}: {between}")

    def _require_lens(self, call: str) -> Lens:
        lens: Lens | None = self.model.lens
        if lens is None:
            raise LinnetError(f"{call} needs a lens: realize_scratch(config, donor_d_in=…) makes one")
        return lens


def _in_place_of(donor: Donor, rows: TokenRows) -> str:
    """What another vocabulary than the donor's means: its size, and that nothing is left of a chat."""
    chat = ", without its chat template" if "tokenizer.chat_template" in donor.file.metadata else ""
    return f"{len(rows.counts):,} tokens in place of its {donor.config.vocab:,}{chat}"


def _check_teacher(teacher: TeacherOptions, donor: Donor, values: Mapping[str, Any]) -> None:
    """Refuse a teacher whose tokens are not those that the model will have."""
    file = TeacherFile(teacher.teacher)
    if values["vocab"] is not None:
        raise UsageError(
            f"`vocab={values['vocab']}` trains another vocabulary than the {len(file.tokens):,} tokens of the teacher,"
            " which knows its own alone: leave it out"
        )
    if values["tokenizer"] is None:
        advice = f"take a teacher with the donor's, or give the model the teacher's, `tokenizer={teacher.teacher}`"
        file.require_same_tokens(donor.metadata, f"the donor {donor.path}", advice)
    else:
        from linnet.data.tokenizer import Vocabulary

        advice = f"give the model the teacher's, `tokenizer={teacher.teacher}`"
        file.require_same_tokens(Vocabulary(values["tokenizer"]).metadata, f"{values['tokenizer']}", advice)


def _check_vocab(donor: Donor, values: Mapping[str, Any]) -> None:
    if values["vocab"] == donor.config.vocab:
        raise UsageError(
            f"`vocab={values['vocab']}` is the size of the donor's own vocabulary: leave it out to take that one, or"
            " choose another size for one trained on the corpus"
        )
    if find_corpus(values["corpus"], values["field"], plain=values["plain"]).is_pack:
        raise UsageError(
            f"`vocab` trains a vocabulary on text, and the corpus {values['corpus']!r} is a pack of token ids: leave"
            " `vocab` out, or give the text"
        )


def _copy(array: NDArray[np.float32], target: Tensor) -> None:
    import torch

    target.data.copy_(torch.from_numpy(np.ascontiguousarray(array, np.float32)))


def _read_lens(path: str | os.PathLike[str], shape: tuple[int, int]) -> NDArray[np.float32]:
    proj_DW = read_lens(path).proj
    if proj_DW.shape != shape:
        raise DonorError(
            "the lens is of another shape",
            path=path,
            place="tensor 'lens.proj.weight'",
            expected=f"{list(shape)}, [d_model, donor width]",
            found=str(list(proj_DW.shape)),
        )
    return proj_DW


def _rows_of(flat: NDArray[np.float32], n_floats: int | None, wanted: Sequence[int]) -> NDArray[np.float32]:
    """A flat buffer as rows; it must hold exactly as many numbers as the table, or `n_floats` of them."""
    count = len(flat) if n_floats is None else n_floats
    if count != prod(wanted) or count > len(flat):
        found = f"{len(flat):,}" if n_floats is None else f"n_floats {n_floats:,} of a buffer of {len(flat):,}"
        raise UsageError(
            f"the donor's rows: the flat buffer is of another size; expected {prod(wanted):,} numbers,"
            f" {list(wanted)} as [vocab, donor_d_in], found {found}"
        )
    return flat[:count].reshape(tuple(wanted))


def _check_shape(name: str, shape: Sequence[int], expected: Sequence[int], axes: str) -> None:
    if tuple(shape) != tuple(expected):
        raise UsageError(f"{name}: the shape is wrong; expected {list(expected)}, {axes}, found {list(shape)}")
