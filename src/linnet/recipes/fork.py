"""Forks: a new run that begins at a checkpoint of another, with some settings changed (`--from RUN@STEP`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet import gguf
from linnet.architectures import ViTConfig
from linnet.errors import UsageError
from linnet.files import step_of, step_path
from linnet.models.model_name import find_model, model_path
from linnet.recipes.flags import Flag, fill
from linnet.recipes.job import BUDGETS, Job, RowData, Rows, TeacherOptions, TextData, teacher_flags, teacher_of
from linnet.recipes.registry import recipe_type
from linnet.runs import Run
from linnet.runs.folder import WEIGHTS
from linnet.train.settings import TrainSettings

if TYPE_CHECKING:
    from linnet.recipes.recipe import AnyRecipe
    from linnet.recipes.training import JobData
    from linnet.train.progress import Progress
    from linnet.train.state import State

# How a model began, and what of it is trained.
_OF_THE_WEIGHTS = (
    *("init", "donor", "lens", "tokens", "layers", "rescale", "train_table"),
    *("base", "adapter", "targets", "rank", "alpha", "rslora", "dora"),
)
_OPTIMIZER = ("optimizer", "bias_correction")  # whose moments are of another kind


@dataclass(frozen=True)
class ForkPoint:
    """A checkpoint of a run, at which another run begins: its weights, moments and place in the data."""

    run: Run
    step: int

    @classmethod
    def find(cls, reference: str | os.PathLike[str], runs: str | os.PathLike[str] | None = None) -> ForkPoint:
        """The checkpoint that `RUN`, `RUN@best` or `RUN@200` means; of a RUN alone its newest."""
        path = find_model(reference, runs, of_run="latest")  # only that one has the optimizer's state
        step = step_of(path)
        if step is None or path.parent.name != WEIGHTS:
            raise UsageError(
                f"`from` {os.fspath(reference)!r} is no checkpoint of a run: to begin with a file's weights, take"
                " linnet train warm-start --init full --donor FILE"
            )
        return cls(Run.load(path.parent.parent), step)

    @property
    def weights(self) -> Path:
        """The checkpoint's GGUF."""
        return step_path(self.run.path / WEIGHTS, self.step)

    @cached_property
    def parent(self) -> Job:
        """What the run did."""
        manifest = self.run.manifest
        if manifest.dialect != "linnet" or manifest.recipe is None or "arch" not in manifest.model:
            raise UsageError(f"run {self.run.id} was not made by linnet train: there are no settings to go on with")
        return Job.from_fields(manifest.model, manifest.config, manifest.recipe)

    def job(self, recipe: str, given: Mapping[str, Any], rows: Rows | None = None, *, own_loss: bool = False) -> Job:
        """The parent's job with the flags that were given; those that speak of its model are refused by name.

        `rows`: data of a program's own; `own_loss`: it has a loss as well.
        """
        parent = self.parent
        if parent.loss_name is not None and not own_loss:
            raise UsageError(
                f"run {self.run.id} was trained with a loss of its own ({parent.loss_name}): fork it in Python,"
                " linnet.train(from_=…, loss=…)"
            )
        if recipe != parent.recipe:
            raise UsageError(
                f"run {self.run.id} is of the recipe {parent.recipe}, not {recipe}: linnet train {parent.recipe} --from"
                f" {self.run.id}"
            )
        flags = {flag.name: flag for group in recipe_type(recipe).flags.values() for flag in group}
        parts: dict[str, dict[str, Any]] = {"settings": {}, "data": {}, "options": {}, "teacher": {}}
        for name, value in given.items():
            if part := self._part(name, value):
                parts[part][name] = value
            elif name != "prompt":
                self._check_model(flags[name], value)
        data = self._data(parts["data"], rows)
        prompts = tuple(given["prompt"]) if given.get("prompt") else parent.prompts
        options = parent.options if parent.options is None else _changed(parent.options, parts["options"])
        has_other_loss = getattr(options, "loss", None) != getattr(parent.options, "loss", None)
        settings = self._settings(parts["settings"], has_other_loss)
        teacher = self._teacher(parts["teacher"])
        return replace(
            parent, data=data, settings=settings, prompts=prompts, options=options, rows=rows, teacher=teacher
        )

    def _part(self, name: str, value: Any) -> str | None:
        """Which part of a job a flag changes; None: its model, or nothing that may be changed."""
        parent = self.parent
        known = () if parent.options is None else tuple(field.name for field in fields(parent.options))
        if name in known and name not in _OF_THE_WEIGHTS:  # first: an adapter's dropout is not the model's
            return "options"
        if name in (field.name for field in fields(TrainSettings)):
            return "settings" if name != "tokens" or isinstance(value, int) else None
        if name in (field.name for field in fields(parent.data)):
            return "data" if name != "tokenizer" else None
        if name in (flag.name for flag in teacher_flags()):
            return "teacher" if isinstance(parent.data, TextData | RowData) else None
        return None

    def _check_model(self, flag: Flag, value: Any) -> None:
        """Refuse another model, tokenizer or beginning than the parent's."""
        model, name = self.parent.model, flag.turns_off or flag.name
        expected = not value if flag.turns_off else value
        if value is None or (flag.turns_off and not value):
            return
        have = getattr(model, name, getattr(self.parent.options, name, None))
        if have != expected:
            known = "" if have is None or flag.turns_off else f", whose `{flag.name}` is {have}"
            raise UsageError(f"`{flag.name}` does not go with `from`: the model is that of run {self.run.id}{known}")

    def _settings(self, flags: Mapping[str, Any], has_other_loss: bool) -> TrainSettings:
        """Without a budget the parent's schedule goes on; with one a schedule of its own begins."""
        settings = self.parent.settings
        budgets = [name for name in BUDGETS if flags.get(name) is not None]
        if len(budgets) > 1:
            raise UsageError(f"`{budgets[0]}` and `{budgets[1]}` both say how long to train: give one of them")
        if budgets:
            last = self.step + flags["steps"] if budgets == ["steps"] else max(settings.steps, self.step + 1)
            flags = {**flags, "steps": last, "schedule_start": self.step, "minutes": flags.get("minutes")}
        elif self.step >= settings.steps:
            raise UsageError(
                f"run {self.run.id} has done its {settings.steps} steps: say how long to go on, with `steps`, `tokens`,"
                " `epochs` or `minutes`"
            )
        else:
            flags = {**flags, "minutes": None}
        return replace(settings, **_with_rates(settings, flags, has_other_loss))

    def _teacher(self, flags: Mapping[str, Any]) -> TeacherOptions | None:
        """The parent's teacher, another one, or other words about it."""
        known = self.parent.teacher
        parents = {} if known is None else {flag.name: getattr(known, flag.name) for flag in teacher_flags()}
        named = {name: value for name, value in flags.items() if value is not None}
        if "teacher" in named:
            named["teacher"] = str(model_path(named["teacher"], self.run.path.parent))
        return teacher_of({**parents, **named})

    def _data(self, flags: Mapping[str, Any], rows: Rows | None) -> Any:
        """The parent's data, or others cut into its tokens."""
        parent = self.parent.data
        if rows is not None:
            return RowData(type(rows.rows).__name__, float(flags.get("held_out", getattr(parent, "held_out", 0.02))))
        if isinstance(parent, RowData):
            raise UsageError(
                f"run {self.run.id} was trained on the data of a program ({parent.rows}): fork it there,"
                " linnet.train(from_=…, data=…)"
            )
        data = _changed(parent, flags)
        if isinstance(parent, TextData) and data.corpus != parent.corpus and flags.get("rows") is None:
            data = _with_rows_of_its_own(data, flags)
        same = {name for name, value in flags.items() if value == getattr(parent, name)}
        return data if flags.keys() <= {"cache", "documents"} | same else self.with_tokens(data)

    def with_tokens(self, data: Any) -> Any:
        """The data, to be cut into the tokens of the checkpoint."""
        if not isinstance(data, TextData) or not self.has_tokenizer:
            return data
        return replace(data, tokenizer=str(self.weights.absolute()), pre=None)

    # -- once the data are read -------------------------------------------------------------------------------------

    def has_same_tokens(self, data: JobData) -> bool:
        """Are the data in the tokens of the checkpoint? A vocabulary trained on a text that has changed is another."""
        if data.vocabulary is None:
            return True
        with gguf.GGUFFile.open(self.weights) as file:
            known: Any = file.metadata.get("tokenizer.ggml.tokens")
        tokens: Any = data.vocabulary.get("tokenizer.ggml.tokens")
        return known is None or tokens is None or list(known) == list(tokens)

    def place(self, data: JobData) -> Job:
        """The job of the data that were read: the parent's model, and its place in the data where they are the same."""
        job, model = data.job, self.parent.model
        if isinstance(model, ViTConfig):
            for name in ("num_classes", "num_channels"):
                own, expected = getattr(job.model, name), getattr(model, name)
                if own != expected:
                    raise UsageError(
                        f"the {data.description} has {name} {own}, and the model of run {self.run.id} {expected}"
                    )
            job = replace(job, model=replace(job.model, image_mean=model.image_mean, image_std=model.image_std))
        before = self.parent.settings
        ctx = 1 if isinstance(model, ViTConfig) else self.parent.ctx
        per_step = before.batch_images or before.batch_tokens or before.batch * ctx
        done = (self.step - (before.data_offset or 0)) * per_step
        first = -(-done // data.per_step) if self.has_same_data(data) else 0
        settings = replace(job.settings, data_offset=self.step - first or None)
        data.settings = settings
        data.job = replace(job, settings=settings)
        return data.job

    def has_same_data(self, data: JobData) -> bool:
        """Are these the parent's data, in its order?"""
        known = self.state.facts.get("fingerprints", {}).get("data") or self._metadata.get("linnet.data_fingerprint")
        return bool(known == data.fingerprint and data.job.settings.seed == self.parent.settings.seed)

    def restore(self, recipe: AnyRecipe, data: JobData) -> tuple[Progress, str]:
        """Put the checkpoint into a recipe that is built: where the loop stands, and a line for people."""
        from linnet.train.progress import Progress

        state, settings = self.state, data.job.settings
        before = self.parent.settings
        other = next((name for name in _OPTIMIZER if getattr(settings, name) != getattr(before, name)), None)
        if not self.has_state:
            moments = f"the optimizer's moments begin anew, the state of step {self.step} is gone"
        elif other:
            moments = f"the optimizer's moments begin anew (another {other})"
            trained = {name: tensor for name, tensor in state.moments.items() if name.startswith("trained/")}
            state = replace(state, moments=trained)
        else:
            moments = "the optimizer's moments"
        recipe.restore(self.weights, state)
        recipe.step_index = self.step
        where = "goes on in the same data" if self.has_same_data(data) else "begins with other data"
        facts = self.state.facts
        trained_on = facts.get("seen") or self._metadata.get(f"linnet.{data.unit}_seen") or self.step * data.per_step
        loss = facts.get("loss", self._metadata.get("linnet.train_loss", float("nan")))
        progress = Progress(step=self.step, seen=int(trained_on), loss=float(loss), first_loss=facts.get("first_loss"))
        return progress, f"forked from {self.run.id}@{self.step}: its weights; {moments}; {where}"

    @property
    def has_tokenizer(self) -> bool:
        """Does the checkpoint carry the tokens of its vocabulary?"""
        with gguf.GGUFFile.open(self.weights) as file:
            return "tokenizer.ggml.tokens" in file.metadata

    @property
    def has_state(self) -> bool:
        """Is there more of the checkpoint than its weights?"""
        from linnet.train.state import state_path

        return state_path(self.run.path, self.step).is_file()

    @cached_property
    def state(self) -> State:
        """What the checkpoint has besides its weights; nothing where only those were kept."""
        from linnet.recipes.resume_checks import check_pair
        from linnet.train.state import State, load, state_path

        if not self.has_state:
            if getattr(self.parent.options, "donor_d_in", None):
                raise UsageError(
                    f"the state of step {self.step} of run {self.run.id} is gone, and a model with a lens needs it:"
                    " fork its newest checkpoint"
                )
            return State({}, {})
        state = load(state_path(self.run.path, self.step))
        check_pair(self.run, self.step, state, self.weights)
        return state

    @cached_property
    def _metadata(self) -> dict[str, Any]:
        with gguf.GGUFFile.open(self.weights) as file:
            return {key: value for key, value in file.metadata.items() if key.startswith("linnet.")}


def _with_rates(parent: TrainSettings, given: Mapping[str, Any], has_other_loss: bool) -> dict[str, Any]:
    """The settings that were given, and what another rate, optimizer or loss means for the parent's rates."""
    others = ("lr_embedding", "lr_head", "lr_vectors")
    if given.get("optimizer", parent.optimizer) != parent.optimizer:
        return {**dict.fromkeys(("lr", *others, "weight_decay")), **given}  # by the rule
    if has_other_loss and given.get("lr") is None:
        return {**dict.fromkeys(("lr", *others)), **given}  # by the rule of that loss
    if (lr := given.get("lr")) is None or parent.lr is None:
        return dict(given)
    rates = {name: rate * lr / parent.lr for name in others if (rate := getattr(parent, name)) is not None}
    return {**rates, **given}


def _with_rows_of_its_own(data: TextData, flags: Mapping[str, Any]) -> TextData:
    """Data of another corpus, without what was found out of the rows of the parent's."""
    if data.rows in (None, "text"):
        return data
    from linnet.data.cache import cache_folder
    from linnet.data.corpus import find_corpus
    from linnet.data.row_kinds import with_rows

    data = replace(data, rows=None)
    source = find_corpus(data.corpus, data.field, plain=data.plain, cache=cache_folder(data.cache))
    rows = with_rows(source, has_field=bool(data.field)).rows
    if rows == "conversations":
        return data
    data = replace(data, train_on=flags.get("train_on"))
    if rows == "preferences":
        return data
    return replace(data, chat_format=flags.get("chat_format"), documents=bool(flags.get("documents")))


def _changed(data: Any, flags: Mapping[str, Any]) -> Any:
    """A dataclass with some fields changed, with paths that hold in any folder."""
    values = {field.name: getattr(data, field.name) for field in fields(data)}
    return fill(type(data), {**values, **flags})
