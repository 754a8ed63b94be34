"""`linnet.train`, `resume`, `generate`, `chat` and `load`: the commands as calls, with the same words."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, replace
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeVar, overload

import msgspec

from linnet.errors import LinnetError, UsageError, mismatch, missing_extra, near_words, suggestion
from linnet.infer.loading import load as infer_load
from linnet.models.model_name import model_path
from linnet.recipes.flags import Flag, count_of, defaults_of, kept_values
from linnet.recipes.registry import RECIPES, recipe_type
from linnet.runs import Run
from linnet.train.launcher import adopt_launcher
from linnet.train.process import together_where_met, wait_asleep_where_shared

if TYPE_CHECKING:
    from linnet.infer.chat import Chat
    from linnet.infer.loaded_model import LoadedModel
    from linnet.recipes import Job
    from linnet.recipes.fork import ForkPoint
    from linnet.recipes.restart import PreviousRun
    from linnet.recipes.training import Training
    from linnet.train import Callback
    from linnet.train.plan import Plan
    from linnet.train.step import LossFunction

# What others call it.
_ELSEWHERE = {
    "learning_rate": "lr",
    "max_steps": "steps",
    "num_train_epochs": "epochs",
    "max_tokens": "tokens",
    "early_stopping_patience": "patience",
    "num_steps": "steps",
    "batch_size": "batch",
    "per_device_train_batch_size": "batch",
    "context": "ctx",
    "block_size": "ctx",
    "seq_len": "ctx",
    "max_length": "ctx",
    "vocab_size": "vocab",
    "hidden_size": "d_model",
    "num_layers": "n_layers",
    "n_layer": "n_layers",
    "num_hidden_layers": "n_layers",
    "n_head": "n_heads",
    "tags": "tag",
    "prompts": "prompt",
    "project": "experiment",
    "runs_root": "runs",
    "output_dir": "runs",
    "dataset": "data",
    "train_dataset": "data",
    "eval_dataset": "eval_data",
    "loss_fn": "loss",
    "max_grad_norm": "clip",
    "save_steps": "checkpoint_every",
    "eval_steps": "eval_every",
}

# Flags of a corpus that Linnet reads, which have no meaning for a program's own rows.
_OF_TEXT = ("corpus", "field", "cache", "documents", "dedup", "plain", "rows", "chat_format", "train_on")

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _as_a_command(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """A decorator: what the command line does before a command, and when a package is not installed."""

    @functools.wraps(call)
    def called(*arguments: _P.args, **options: _P.kwargs) -> _R:
        wait_asleep_where_shared()
        try:
            return call(*arguments, **options)
        except ModuleNotFoundError as error:
            if (missing := missing_extra(error, f"linnet.{call.__name__}")) is None:
                raise
            raise LinnetError(missing) from None

    return called


@overload
def train(recipe: str | None = None, /, *, dry_run: Literal[True], **flags: Any) -> Plan: ...


@overload
def train(recipe: str | None = None, /, *, dry_run: Literal[False] = False, **flags: Any) -> Run: ...


@_as_a_command
def train(
    recipe: str | None = None,
    /,
    *,
    data: Any = None,
    eval_data: Any = None,
    tokenizer: Any = None,
    loss: LossFunction | str | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = False,
    run_id: str | None = None,
    name: str | None = None,
    experiment: str | None = None,
    group: str | None = None,
    tag: str | Iterable[str] = (),
    runs: str | os.PathLike[str] | None = None,
    from_: str | os.PathLike[str] | Run | None = None,
    resume: Literal["never", "auto"] = "never",
    dry_run: bool = False,
    **flags: Any,
) -> Run | Plan:
    """Train to the end and return the run; its `status` says how it ended.

    run = linnet.train("from-scratch", corpus="books/", steps=500, lr=1e-3)

    - `recipe`: `from-scratch` (by default), `warm-start`, `lora`, `finetune` or `vit-tiny`; `flags`: those of
      `linnet train RECIPE`, with underscores.
    - `data`: rows of token ids instead of a corpus, from a map-style dataset or an iterable; with `tokenizer` (a
      GGUF's path, or an object of tokenizers or transformers) or `vocab`. `eval_data`: rows to evaluate on.
    - `loss`: a function of model and batch, in the place of the model's own; or a word, `"dpo"` of `lora`.
    - `callbacks`: instances of `linnet.Callback`. `progress`: show it as the command does.
    - `run_id`, `name`, `experiment`, `group`, `tag`, `runs`: what the run is called and where it goes.
    - `from_`: begin at a checkpoint of another run (`"RUN"`, `"RUN@best"`, `"RUN@200"`): what is not given is as it was
      there. The new run knows its `parent`, and counts on from its step.
    - `resume`: `auto` goes on with the run of that `run_id` where it has a checkpoint, and starts it where it has none:
      the same program may then be started again after whatever ended it.
    - `dry_run`: try a few steps and return the `Plan`, what the training would take; no run is made.

    What does not fit together is a UsageError before anything is made.
    """
    if data is None and tokenizer is not None:
        flags["tokenizer"] = tokenizer
    if isinstance(loss, str):  # the flag of a recipe: `loss="dpo"`
        flags["loss"], loss = loss, None
    adopt_launcher()
    if resume not in ("never", "auto"):
        raise UsageError(f"train: resume cannot be {resume!r}; choose from never, auto")
    fork = None if from_ is None else _fork_point(from_, runs)
    recipe = recipe or ("from-scratch" if fork is None else fork.parent.recipe)
    if data is not None:
        _require_rows(recipe)
    asked = _flags_given(recipe, flags, runs)
    callbacks, preparing = _with_screen(callbacks, progress)
    previous: PreviousRun | None = None
    if resume == "auto" and not dry_run:
        from linnet.recipes.restart import PreviousRun

        previous = PreviousRun.find(run_id, runs, recipe, asked, forked=fork is not None)
    if previous is not None and previous.is_done:
        return previous.run
    if previous is not None and previous.step is not None:
        return _resume(previous.run, data, eval_data, loss, callbacks=callbacks, preparing=preparing, previous=previous)
    with together_where_met():
        if fork is not None:
            job = _forked_job(recipe, fork, data, eval_data, flags, loss is not None)
        elif data is not None:
            job = _row_job(recipe, data, eval_data, tokenizer, flags, runs)
        else:
            job = _job(recipe, flags, runs)
        if data is None and eval_data is not None:
            raise UsageError("eval_data goes with data: a corpus is evaluated on its own held-out part (held_out)")
    if loss is not None:
        job = replace(job, loss=loss, loss_name=getattr(loss, "__qualname__", type(loss).__name__))
    from linnet.recipes import start

    if dry_run:
        from linnet.recipes.dry_run import dry_run as planned

        return planned(job, preparing, fork)
    labels: dict[str, Any] = {"run_id": run_id, "name": name, "experiment": experiment, "group": group}
    labels |= {"tags": [tag] if isinstance(tag, str) else list(tag)}
    labels |= {"flags": kept_values(recipe_type(recipe).flags, asked), "fork": fork, "previous": previous}
    return _run_of(start(job, runs_root=runs, callbacks=callbacks, preparing=preparing, **labels))


@_as_a_command
def resume(
    run: str | os.PathLike[str] | Run,
    /,
    *,
    steps: int | None = None,
    force: bool = False,
    data: Any = None,
    eval_data: Any = None,
    loss: LossFunction | None = None,
    callbacks: Iterable[Callback] = (),
    progress: bool = False,
    runs: str | os.PathLike[str] | None = None,
) -> Run:
    """Go on with a run from its newest checkpoint, as `linnet resume` does, and return it.

    - `run`: a run, its id, the beginning of one, a path, or `latest`.
    - `data`, `eval_data`, `loss`: the program's own, where the run was started with them.
    """
    adopt_launcher()
    callbacks, preparing = _with_screen(callbacks, progress)
    options: dict[str, Any] = {"steps": steps, "force": force, "runs_root": runs}
    return _resume(run, data, eval_data, loss, callbacks=callbacks, preparing=preparing, **options)


load = _as_a_command(infer_load)


@overload
def generate(
    model: str | os.PathLike[str] | Run | LoadedModel,
    prompt: str = "",
    /,
    *,
    samples: None = None,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
    adapter: Any = (),
    **options: Any,
) -> str: ...
@overload
def generate(
    model: str | os.PathLike[str] | Run | LoadedModel,
    prompt: str = "",
    /,
    *,
    samples: int,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
    adapter: Any = (),
    **options: Any,
) -> list[str]: ...
@_as_a_command
def generate(
    model: str | os.PathLike[str] | Run | LoadedModel,
    prompt: str = "",
    /,
    *,
    samples: int | None = None,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
    adapter: Any = (),
    **options: Any,
) -> str | list[str]:
    """The text that follows a prompt, as `linnet generate` gives it; with `samples` a list of so many.

    linnet.generate("latest", "The whale", temperature=0.6, max_tokens=60, stop="\\n\\n")

    - `model`: a GGUF's path, a run (its best checkpoint), `RUN@latest`, `RUN@200`, or what `linnet.load` gave. For
      more than one text, load it once.
    - `adapter`: an adapter of it, or several, as `linnet.load` takes them.
    - `options`: those of `linnet generate`, with underscores: `max_tokens`, `temperature`, `top_k`, `top_p`, `min_p`,
      `repetition_penalty`, `seed`; `stop` is a text or several.
    """
    texts: str | list[str] = _loaded(model, device, runs, adapter).generate(prompt, samples=samples, **options)
    return texts


@_as_a_command
def chat(
    model: str | os.PathLike[str] | Run | LoadedModel,
    /,
    *,
    system: str | None = None,
    chat_format: str = "auto",
    think: bool = False,
    device: str = "auto",
    runs: str | os.PathLike[str] | None = None,
    adapter: Any = (),
    **options: Any,
) -> Chat:
    """A conversation with a model, as `linnet chat` has it: `ask` it, or `stream` its answers.

    chat = linnet.chat("smollm2.gguf", system="Be brief.", temperature=0.6)
    chat.ask("What is 2 + 2?")

    - `model`: as of `linnet.generate`. `system`: what it is told before. `chat_format`: how messages are written, by
      default as its chat template tells. `think`: let a model that thinks before it answers do so.
    - `adapter`: an adapter of it, or several, as `linnet.load` takes them.
    - `options`: those of `linnet.generate`; `max_tokens` is 1024 of an answer.
    """
    from linnet.infer.chat import Chat

    return Chat(_loaded(model, device, runs, adapter), system=system, chat_format=chat_format, think=think, **options)


def _loaded(
    model: str | os.PathLike[str] | Run | LoadedModel, device: str, runs: str | os.PathLike[str] | None, adapter: Any
) -> LoadedModel:
    """A model by any of its names; one that is loaded is taken as it is."""
    from linnet.infer.loaded_model import LoadedModel

    if not isinstance(model, LoadedModel):
        return infer_load(model, device=device, runs=runs, adapter=adapter)
    if adapter:
        raise UsageError("`adapter` goes with a model that is still to be loaded: linnet.load(model, adapter=…)")
    return model


def _with_screen(callbacks: Iterable[Callback], progress: bool) -> tuple[list[Callback], Any]:
    """The callbacks, with the command line's screen among them where `progress` asks for it."""
    if not progress:
        return list(callbacks), None
    from linnet.cli.progress import preparing, screen_for

    return [*callbacks, screen_for()], preparing


def _resume(
    run: str | os.PathLike[str] | Run, data: Any, eval_data: Any, loss: LossFunction | None, **options: Any
) -> Run:
    from linnet.recipes import resume
    from linnet.recipes.job import Rows

    rows = None if data is None else Rows(data, eval_data)
    return _run_of(resume(run, rows=rows, loss=loss, **options))


def _run_of(training: Training) -> Run:
    training.run()
    return Run.load(training.run_dir)


def _job(recipe: str, given: Mapping[str, Any], runs: str | os.PathLike[str] | None) -> Job:
    flags = _known_flags(recipe, given)
    for flag in flags.values():
        if flag.default is MISSING and flag.name not in given:
            raise UsageError(f"train: {recipe} needs a {flag.name}: {flag.help}")
    values = {name: _value(flags[name], given[name], runs) for name in given}
    return recipe_type(recipe).job({**defaults_of(flags.values()), **values, "runs": runs})


def _flags_given(recipe: str, given: Mapping[str, Any], runs: str | os.PathLike[str] | None) -> dict[str, Any]:
    """The flags that were given, as `run.json` can hold them; a tokenizer that is an object is none of them."""
    flags = _known_flags(recipe, given)
    plain = {name: value for name, value in given.items() if name != "tokenizer" or _is_reference(value)}
    return {name: _value(flags[name], value, runs) for name, value in plain.items()}


def _is_reference(tokenizer: Any) -> bool:
    return isinstance(tokenizer, str | os.PathLike | Run)


def _known_flags(recipe: str, values: Mapping[str, Any]) -> dict[str, Flag]:
    """The flags of a recipe; a name that is none of them is refused, with what may have been meant."""
    flags = {flag.name: flag for group in recipe_type(recipe).flags.values() for flag in group}
    own = [*flags, *inspect.signature(train).parameters]
    for name in values:
        if name not in flags:
            meant = _ELSEWHERE.get(name)
            close = [meant] if meant in own else near_words(name, own, cutoff=0.65)
            hint = f"did you mean {close[0]}?" if close else f"see linnet train {recipe} --help"
            if owners := [other for other in RECIPES if other != recipe and name in _flag_names(other)]:
                hint = f"it belongs to {' and '.join(owners)}"
            raise UsageError(f"train: {recipe} has no flag {name!r}; {hint}")
    return flags


def _flag_names(recipe: str) -> set[str]:
    return {flag.name for group in recipe_type(recipe).flags.values() for flag in group}


def _fork_point(from_: str | os.PathLike[str] | Run, runs: str | os.PathLike[str] | None) -> ForkPoint:
    from linnet.recipes.fork import ForkPoint

    return ForkPoint.find(from_.path if isinstance(from_, Run) else from_, runs)


def _forked_job(
    recipe: str, fork: ForkPoint, data: Any, eval_data: Any, given: Mapping[str, Any], own_loss: bool
) -> Job:
    from linnet.recipes.job import Rows

    flags = _known_flags(recipe, given)
    rows = None if data is None else Rows(data, eval_data, fork.weights if fork.has_tokenizer else None)
    values = {name: _value(flags[name], value, None) for name, value in given.items()}
    return fork.job(recipe, values, rows, own_loss=own_loss)


def _require_rows(recipe: str) -> None:
    """Refuse a program's own rows where a recipe does not train on them."""
    from linnet.recipes.job import RowData

    if RowData not in recipe_type(recipe).data_types:
        owners = [name for name in RECIPES if RowData in recipe_type(name).data_types]
        raise UsageError(f"train: data= goes with {' and '.join(owners)}, not with {recipe}")


def _row_job(
    recipe: str,
    data: Any,
    eval_data: Any,
    tokenizer: Any,
    flags: dict[str, Any],
    runs: str | os.PathLike[str] | None,
) -> Job:
    from linnet.recipes.job import RowData, Rows, vocabulary_size

    if corpus := [name for name in _OF_TEXT if name in flags]:
        raise UsageError(f"train: {corpus[0]} is for text that Linnet reads: it does not go with data=")
    if "base" in flags:
        tokenizer = flags["base"] if tokenizer is None else tokenizer
    elif "vocab" not in flags:
        size = None if _is_reference(tokenizer) else vocabulary_size(tokenizer)
        if tokenizer is None:
            raise UsageError("train: data= needs a tokenizer or a vocab, the number of token ids")
        flags = flags if size is None else {**flags, "vocab": size}
    job = _job(recipe, flags, runs)
    held_out = float(flags.get("held_out", 0.02))
    source = model_path(tokenizer, runs).absolute() if _is_reference(tokenizer) else tokenizer
    prompts = job.prompts if "prompt" in flags else ()
    rows = Rows(data, eval_data, source)
    return replace(job, data=RowData(type(data).__name__, held_out), rows=rows, prompts=prompts)


def _value(flag: Flag, value: Any, runs: str | os.PathLike[str] | None) -> Any:
    """A value of the type that its flag has; a path for a text where the command takes one."""
    if flag.is_model and isinstance(value, Run):
        value = model_path(value, runs)
    if flag.is_run and isinstance(value, Run):
        value = value.path.absolute()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    name, kind = flag.name, flag.type
    if (flag.is_path or flag.is_model) and not isinstance(value, str | None):
        raise UsageError(f"train: {name} is a path{' or a run' if flag.is_model else ''}, found {value!r}")
    if kind == tuple[str, ...] and isinstance(value, str):
        value = (value,)
    if flag.is_count and isinstance(value, str) and value[:1].isdigit():
        value = count_of(value)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        if choices := [choice for choice in getattr(kind, "__args__", ()) if isinstance(choice, str)]:
            raise UsageError(f"train: {name} cannot be {value!r}{suggestion(str(value), choices)}") from None
        raise UsageError(f"train: {name} cannot be {value!r}: {mismatch(error)}") from None
