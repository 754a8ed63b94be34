"""`linnet train`: one command a recipe."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from linnet.architectures import names_for
from linnet.cli.options import AsJson, ConfigPath, RunsFolder, absolute, absolute_source, unless_off
from linnet.errors import UsageError
from linnet.runs import ids
from linnet.train.settings import TrainSettings

if TYPE_CHECKING:
    from linnet.recipes import Job

    TextArchitecture = str
else:
    TextArchitecture = Literal[names_for("text")]

# ruff: noqa: B008 (the defaults are frozen)

_MODEL, _TEXT, _TRAINING, _RUN = (Group.create_ordered(name) for name in ("Model", "Text", "Training", "Run"))


@dataclass(frozen=True)
class ModelFlags:
    """The shape of the model; what is not given is the preset's.

    Parameters
    ----------
    preset
        tiny, demo (3M), nano (15M), smollm2-135m, gpt2-124m or smollm2-360m.
    arch
        Another architecture, with the preset's sizes.
    vocab
        Tokens; a tokenizer of so many is trained, unless one is given.
    d_model
        Width.
    n_layers
        Depth.
    n_heads
        Attention heads.
    n_kv
        Heads of keys and values (llama).
    d_ff
        Width of the feed-forward part.
    ctx
        Tokens of a sequence.
    head_dim
        Size of a head; d_model / n_heads by default (llama).
    rope_base
        Base of the rotary angles (llama).
    rms_eps
        Added under the root of the norm (llama).
    untied
        Give the output a matrix of its own instead of the embedding's.
    qkv_bias
        Biases on queries, keys and values (llama).
    init_scale
        Times the usual size of the first weights.
    """

    preset: str = "demo"
    arch: TextArchitecture | None = None
    vocab: int | None = None
    d_model: int | None = None
    n_layers: int | None = None
    n_heads: int | None = None
    n_kv: int | None = None
    d_ff: int | None = None
    ctx: int | None = None
    head_dim: int | None = None
    rope_base: float | None = None
    rms_eps: float | None = None
    untied: bool = False
    qkv_bias: bool = False
    init_scale: float = 1.0


@dataclass(frozen=True)
class TextFlags:
    """The text to learn from.

    Parameters
    ----------
    corpus
        A file, a folder, a pattern, or python: the standard library of this interpreter.
    field
        Where the text is in a JSONL line or a Parquet row; text by default.
    tokenizer
        A GGUF whose tokenizer is taken; by default the donor's where there is one, else one is trained.
    held_out
        The share of documents kept for evaluation.
    documents
        Keep documents from seeing each other.
    cache
        Where prepared corpora are kept; else $LINNET_CACHE, else the user's cache folder.
    prompt
        What samples begin with; may be given several times.
    """

    corpus: str = "python"
    field: str | None = None
    tokenizer: Path | None = None
    held_out: float = 0.02
    documents: bool = False
    cache: Path | None = None
    prompt: tuple[str, ...] = ()

    def data(self, tokenizer: Path | None = None) -> Any:
        """The same as a job has it; `tokenizer` is taken where none was given."""
        from linnet.recipes import TextData

        chosen = self.tokenizer or tokenizer
        return TextData(
            corpus=absolute_source(self.corpus),
            tokenizer=absolute(chosen) if chosen else None,
            held_out=self.held_out,
            documents=self.documents,
            cache=absolute(self.cache) if self.cache else None,
            field=self.field,
        )

    def prompts(self) -> tuple[str, ...]:
        """What samples begin with; by default something that fits the corpus."""
        return self.prompt or (("def __init__(self",) if self.corpus == "python" else ("The",))


@dataclass(frozen=True)
class RunFlags:
    """Where the run goes and what it is called.

    Parameters
    ----------
    run_id
        The folder's name, or a template for it such as {recipe}-{date}-{seq}; {arch}-{date}-{seq} by default.
    name
        A label.
    experiment
        What it is part of.
    tag
        May be given several times.
    """

    config: ConfigPath = None
    runs: RunsFolder = None
    run_id: str | None = None
    name: str | None = None
    experiment: str | None = None
    tag: tuple[str, ...] = ()


def from_scratch(
    *,
    model: Annotated[ModelFlags, Parameter(name="*", group=_MODEL, show_default=unless_off)] = ModelFlags(),
    text: Annotated[TextFlags, Parameter(name="*", group=_TEXT, show_default=unless_off)] = TextFlags(),
    settings: Annotated[TrainSettings, Parameter(name="*", group=_TRAINING, show_default=unless_off)] = TrainSettings(),
    run: Annotated[RunFlags, Parameter(name="*", group=_RUN)] = RunFlags(),
    json: AsJson = False,
) -> int:
    """Train a llama or a GPT-2 that knows nothing yet, on any text.

    With no flags at all it learns Python from the interpreter's own standard library. Every checkpoint is a GGUF that
    llama.cpp, Ollama and LM Studio open as it is. `--config FILE.toml` reads flags from a file; those given on the
    command line win.
    """
    from linnet.recipes import Job

    if model.vocab is not None and text.tokenizer is not None:
        _check_vocab(model.vocab, text.tokenizer)
    return run_job(Job(_config(model), text.data(), settings, text.prompts(), model.init_scale), run, json)


def run_job(job: Job, run: RunFlags, json: bool) -> int:
    """Train a job to its end and say what it made."""
    from linnet.cli.output import lasting_output
    from linnet.cli.progress import preparing, watch_for
    from linnet.recipes import launch
    from linnet.train.watch import Watch

    labels: dict[str, Any] = {name: getattr(run, name) for name in ("run_id", "name", "experiment")}
    if run.run_id is not None and "{" in run.run_id:
        ids.check_template(run.run_id)
        labels |= {"run_id": None, "template": run.run_id}
    with lasting_output():
        training = launch(
            job,
            runs_root=run.runs,
            watch=Watch() if json else watch_for(),
            preparing=None if json else preparing,
            tags=list(run.tag),
            **labels,
        )
        return finish(training, json)


def finish(training: Any, json: bool) -> int:
    """Run a training to its end and say what it made."""
    from linnet.cli.outcome import as_json, tell
    from linnet.cli.terminal import print_json

    outcome = training.finish()
    if json:
        print_json(as_json(training, outcome))
    else:
        tell(training, outcome)
    return int(outcome.exit_code)


def _check_vocab(vocab: int, tokenizer: Path) -> None:
    from linnet.data.vocabulary import Vocabulary

    rows = Vocabulary(tokenizer).rows
    if rows != vocab:
        raise UsageError(f"--vocab {vocab} does not go with a tokenizer of {rows} tokens: leave it out")


def _config(flags: ModelFlags) -> Any:
    """The preset with the given fields changed; flags of another architecture are refused by name."""
    from linnet.architectures import preset, presets_for

    presets = presets_for("text")
    given = {f.name: getattr(flags, f.name) for f in fields(flags) if f.name not in ("preset", "arch", "init_scale")}
    changes = {name: value for name, value in given.items() if value is not None and value is not False}
    if changes.pop("untied", False):
        changes["tied"] = False
    base = preset(flags.preset, presets)
    if flags.arch is not None and flags.arch != base.arch:
        return _other_architecture(flags.arch, base, changes)
    known = {f.name for f in fields(base)}
    for name in changes:
        if name not in known:
            raise UsageError(f"--{name.replace('_', '-')} does not belong to a {base.arch}")
    return preset(flags.preset, presets, **changes)


def _other_architecture(arch: str, base: Any, changes: dict[str, Any]) -> Any:
    """A preset's sizes in another architecture: `--arch gpt2` with a llama's preset, or the other way round."""
    from linnet.architectures import ARCHITECTURES

    kind = ARCHITECTURES[arch].config
    known = [f.name for f in fields(kind)]
    shared = {name: getattr(base, name) for name in known if hasattr(base, name)}  # a GPT-2 has an n_kv, too
    for name in changes:
        if name not in known:
            raise UsageError(f"--{name.replace('_', '-')} does not belong to a {arch}")
    return kind(**{**shared, **changes})
