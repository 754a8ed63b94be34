"""`linnet`: the list of commands, flags from a file, and how every command ends."""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection, CycloptsError, Group, Parameter
from cyclopts.config import Dict

from linnet import __version__
from linnet.board.words import flags
from linnet.cli.errors import explain, out_of_memory
from linnet.cli.streams import complain, discard, prepare_streams, settle_streams
from linnet.errors import LinnetError, UsageError, missing_extra
from linnet.recipes.registry import RECIPES
from linnet.train.launcher import adopt_launcher
from linnet.train.process import (
    end_process,
    end_process_by,
    has_process_group,
    is_first_rank,
    is_one_of_several,
    rank_name,
    wait_asleep_where_shared,
)

# Every command with its examples. Here, so that the list of commands can be shown without loading any of them. Those of
# `train` are in the registry of the recipes.
_COMMANDS = """
resume: Go on with a run from its newest checkpoint, to the bit where the run is repeatable.
    linnet resume latest
    linnet resume llama-20260531-001 --steps 20000
    linnet resume s3://bucket/runs/llama-20260531-001
    linnet resume latest --gpus all

runs: List runs, a row each: how they stand, the settings that differ, the metrics you choose.
    linnet runs
    linnet runs --columns 'loss,best(acc),loss@200' --sort 'best(validation/loss)'
    linnet runs 'xor-*' --where 'loss<2 and lr>=1e-3 and tag:base' --sort lr
    linnet runs --experiment sweep --by lr --sort validation/loss
    linnet runs --tree
    linnet runs --runs ablations --csv > runs.csv

board: Watch runs in the terminal while they train: charts, machine, samples, checkpoints.
    linnet board
    linnet board wide narrow
    linnet board 'xor-*' --where 'lr=1e-3'
    linnet board --runs ablations
    linnet board latest --key loss --once > loss.txt

plot: Draw metrics of runs, in the terminal or as an SVG or PNG picture.
    linnet plot
    linnet plot loss,validation/loss wide narrow --out loss.svg
    linnet plot loss --smooth heavy --log --theme dark --out loss.png
    linnet plot validation/loss --against lr --experiment sweep --out sweep.svg

report: Write runs into one HTML file that opens anywhere, without a server.
    linnet report latest --out report.html
    linnet report wide narrow --out wide-narrow.html --title "Wide or narrow"
    linnet report --experiment sweep --keys 'loss,validation/*' --out sweep.html
    linnet report latest --artifacts 20MB --theme dark --out pictures.html

show: Show one run: status, settings, metrics and a chart.
    linnet show
    linnet show llama-20260531-001 --key validation/loss
    linnet show latest --artifact samples@300 --out grid.png

tail: Follow a run's events as they are written, until it ends.
    linnet tail
    linnet tail llama-2026 --lines 100 --no-follow
    linnet tail --json | jq .loss

compare: Compare runs: what was set differently, and what came of it.
    linnet compare llama-20260531-001 llama-20260531-002
    linnet compare wide narrow --key loss
    linnet compare 'xor-*' --where 'lr>=1e-3 and tag:base'
    linnet compare --baseline wide narrow 'xor-*'

metrics: Print the metrics of runs, with all digits, for other programs.
    linnet metrics
    linnet metrics 'xor-*' --key loss --key validation/loss --wide --format csv > loss.csv
    linnet metrics latest --key loss --format csv > loss.csv

generate: Go on from a prompt with a checkpoint or any llama, Qwen or GPT-2 GGUF.
    linnet generate latest --prompt "def main("
    linnet generate llama-20260531-001@best --temperature 0 --max-tokens 200
    linnet generate model.gguf --prompt "Once upon a time" --samples 3 --seed 7 --stop "The end"
    linnet generate model.gguf --adapter notes.gguf:0.8 --prompt "Entry 7."
    cat question.txt | linnet generate model.gguf --prompt - --json

chat: Talk to a model in the terminal, in the format of its chats.
    linnet chat smollm2.gguf
    linnet chat latest --system "Answer in one sentence." --temperature 0.6
    linnet chat smollm2.gguf < questions.txt > answers.txt

serve: A model behind an HTTP API, as OpenAI's clients and the browser speak to it; by llama.cpp.
    linnet serve latest
    linnet serve smollm2.gguf --adapter notes:0.8 --port 8081
    linnet serve smollm2.gguf --host 0.0.0.0 --parallel 4 --ctx 2048

eval: How well a model predicts a text, chooses answers or tells images apart; what it expects after a prompt.
    linnet eval latest
    linnet eval llama-20260531-001@best --corpus book.txt
    linnet eval model.gguf --prompt "def main(" --top-k 5
    linnet eval smollm2.gguf --choices arc-easy.jsonl --adapter notes
    linnet eval vit-20260531-001 --images photos/

lmc: The loss on the straight line between two models: one basin, or a barrier between them?
    linnet lmc base@200 base@1000
    linnet lmc seed-0 seed-1 --align
    linnet lmc seed-0 seed-1 --align --alphas 0,0.25,0.5,0.75,1 --record
    linnet lmc vit-0 vit-1 --out line.svg

drift: How far each layer of a run moved from where it began, checkpoint by checkpoint.
    linnet drift latest
    linnet drift warm@500
    linnet drift warm --out drift.svg
    linnet drift warm --record

cka: How alike the layers of two models represent a text, or those of one.
    linnet cka latest
    linnet cka base@200 base@1000
    linnet cka student smollm2.gguf --corpus books/
    linnet cka base --region ffn_out --json

lens-words: What each layer of a model would say: the logit lens.
    linnet lens-words latest --prompt "def main("
    linnet lens-words smollm2.gguf --prompt "The capital of France is" --layers 20:
    linnet lens-words base@200 --prompt "import" --top 5 --json

attention: Which tokens of a prompt each head of a model attends to.
    linnet attention latest --prompt "def main("
    linnet attention smollm2.gguf --prompt "The cat sat on the mat" --layer 4 --head 2
    linnet attention base@200 --prompt "import" --out attention.svg

classify: What a trained vision transformer sees in images.
    linnet classify latest cat.jpg
    linnet classify vit-20260531-001@best scans/*.png photos/ --top 5 --json

note: Add a remark to runs.
    linnet note latest "the good seed; keep"
    linnet note 'xor-*' "before the new tokenizer"

rename: Give runs another name; {lr} in it is the run's own setting.
    linnet rename llama-20260531-001 wide
    linnet rename 'lr{lr}-seed{seed}' --experiment grid

tag: Add tags to runs, or take some away.
    linnet tag latest --add keep
    linnet tag --where 'best(validation/loss)<1.5' --add good --remove todo

mirror: Copy runs to a store: what is not there yet, or has changed since.
    linnet mirror latest
    linnet mirror 'llama-*' s3://bucket/runs

archive: Take runs out of the lists; they stay where they are.
    linnet archive 'test-*'
    linnet archive test-001 --undo

delete: Delete runs, with their checkpoints; for a day they can be taken back.
    linnet delete llama-20260531-001
    linnet delete --where 'status:crashed and step<10'
    linnet delete --undo

thin: Delete checkpoints of runs, all but those to keep.
    linnet thin latest --keep best,latest
    linnet thin --experiment grid --keep best,latest,every=1000 --yes

du: What runs take on the disk.
    linnet du
    linnet du --where 'age>30d' --json

check: Is a run folder sound? Would llama.cpp run this GGUF file? Exit code 1 when not.
    linnet check llama-20260531-001
    linnet check 'llama-*'
    linnet check llama-20260531-001@best
    linnet check model.gguf

inspect: What is in a GGUF file: architecture, sizes, types, tokenizer, where it comes from.
    linnet inspect latest
    linnet inspect model.gguf --tensors
    linnet inspect model.gguf --metadata --json

convert: Write a GGUF file again in another type.
    linnet convert latest@best small.gguf --type q8_0
    linnet convert model-q4.gguf model-f32.gguf --type f32
    linnet convert latest peft-adapter/
    linnet convert peft-adapter/ adapter.gguf --base smollm2-q4.gguf
    linnet convert toy/weights/latest model.gguf --type f32 --tokenizer tokenizer.gguf

merge: Write a model with adapters added to its weights.
    linnet merge smollm2-q4.gguf latest merged.gguf
    linnet merge lora-20260531-001 merged.gguf --type q8_0
    linnet merge smollm2-q4.gguf notes.gguf:0.7 style.gguf:0.5 both.gguf --type f16

models: Find the GGUF files of this machine.
    linnet models
    linnet models --json

lens: Write the principal axes of a donor's embedding as a lens file.
    linnet lens smollm2.gguf --d-model 256 --out lens.gguf
    linnet train warm-start --donor smollm2.gguf --lens lens.gguf --d-model 256 --n-layers 6

plan: Say what a training would take on GPUs that need not be here: memory, time, energy, and how it scales.
    linnet plan --preset smollm2-360m --gpus 8 --batch-tokens 524288
    linnet plan --preset smollm2-135m --gpus 8 --machines 4 --link 50
    linnet plan --d-model 2048 --n-layers 16 --n-heads 32 --device rtx-4090
    linnet plan --preset gpt2-124m --gpus 8 --tokens 10B --out scaling.svg
    linnet plan --preset nano --device cpu --json

demo: Train a small model here, look at its run, let it write: three minutes.
    linnet demo
    linnet demo --corpus books/ --steps 200

doctor: Say what is here, what is missing, and the line that installs it.
    linnet doctor
    linnet doctor --json

help: Show what a command does, its flags and examples.
    linnet help
    linnet help train from-scratch

data prepare: Turn a corpus into tokens to train on, and keep them for the next time.
    linnet data prepare
    linnet data prepare books/ --vocab 8192
    linnet data prepare stories.jsonl.gz --field story --tokenizer donor.gguf
    linnet data prepare dumps/ --field '*.csv=text' --field body --dedup
    linnet data prepare corpus/ --vocab 32768 --part 3/8
    linnet data prepare corpus/ --vocab 32768 --join

data show: Look at a corpus: documents, tokens as coloured pieces, lengths, duplicates, what was left out.
    linnet data show books/
    linnet data show dump.csv.gz --field body --documents 10 --lines 8
    linnet data show books/ --document moby-dick.epub --tokenizer donor.gguf

data teach: Let a teacher pass once through a corpus; trainings with --teacher then need not run it.
    linnet data teach books/ --teacher smollm2.gguf
    linnet data teach books/ --teacher smollm2.gguf --ctx 512 --top-k 32 --temperature-distill 2

data list: What the cache of prepared corpora holds: sizes, ages, which corpus.
    linnet data list
    linnet data list --json

data rm: Remove prepared corpora from the cache.
    linnet data rm books-1f3a
    linnet data rm --older 30d
    linnet data rm --all --yes
"""

# Words that other commands stand behind: `linnet data prepare` is `prepare` in cli/data.py.
_GROUPS = {
    "train": "Train a model.",
    "data": "Corpora: text, tables, web pages, books, documents, packed or not; or packs of token ids.",
}

# How `linnet help` lists them: what most people come for first.
_SECTIONS = {
    "Train": "demo train resume data plan",
    "Use a model": "generate chat serve classify eval inspect convert merge lens models",
    "Look at runs": "board runs show tail compare plot report metrics",
    "Look inside a model": "lens-words attention drift cka lmc",
    "Keep order": "note tag rename archive thin delete du check mirror",
    "This machine": "doctor help --install-completion --version --help",
}

# The files of commands that are in none of their own name, nor of their group's.
_FILES = {
    "resume": "training",
    "plan": "forecast",
    "data show": "corpus",
    "data teach": "teach",
    "data list": "cache",
    "data rm": "cache",
    "lens-words": "lens_words",
    "tail": "show",
    "note": "runs",
    **dict.fromkeys(("rename", "tag", "archive", "delete", "thin", "du"), "housekeeping"),
    "inspect": "gguf",
    "convert": "gguf",
    "models": "gguf",
    "lens": "gguf",
}

_ENDING = """
A RUN is an id or a part of one that no other has, a run's name, a path, or `latest`; where several make sense, also a
pattern, and `--where 'loss<2 and tag:base'` chooses. The folder of runs is `--runs DIR`, else `$LINNET_RUNS`, else
`./runs`. A MODEL is a GGUF path, a RUN (its best checkpoint), `RUN@latest` or `RUN@200`.
"""


def build_app() -> App:
    """The commands, none of them loaded."""
    app = App(
        name="linnet",
        help="Train small transformers; every run is a folder you can read, watch and resume.",
        help_epilogue=_ENDING,
        help_format="markdown",
        version=__version__,
        version_flags=("--version", "-v", "-V"),
        default_parameter=Parameter(negative=(), show_default=False),
    )
    places = _places()
    groups = {
        name: App(name=name, help=text, help_epilogue="", help_format="plaintext", **places[name])
        for name, text in _GROUPS.items()
    }
    for group in groups.values():
        app.command(group)
    for flag in ("--version", "--help"):
        app[flag].group, app[flag].sort_key = places[flag]["group"], places[flag]["sort_key"]
    app.command(
        "linnet.cli.completion:install_completion",
        name="--install-completion",
        help="Let the shell complete commands, flags, runs and checkpoints: bash, zsh, fish.",
        help_epilogue="Examples:\n\n    linnet --install-completion\n    linnet --install-completion --shell zsh",
        help_format="plaintext",
        **places["--install-completion"],
    )
    recipes = [f"train {name}: {recipe.help}\n{recipe.examples}" for name, recipe in RECIPES.items()]
    for paragraph in (*recipes, *_COMMANDS.strip().split("\n\n")):
        head, examples = paragraph.split("\n", 1)
        command, _, text = head.partition(": ")
        group_name, _, verb = command.rpartition(" ")
        file = _FILES.get(command) or group_name or verb
        groups.get(group_name, app).command(
            f"linnet.cli.{file}:{verb.replace('-', '_')}",
            name=verb,
            help=text,
            help_epilogue=f"Examples:\n\n{examples}",
            help_format="plaintext",
            **({} if group_name else places[verb]),
        )
    return app


def _places() -> dict[str, dict[str, Any]]:
    """Where each command stands in the list of commands: its section, and its place there."""
    sections = [Group(title, sort_key=number) for number, title in enumerate(_SECTIONS)]
    return {
        name: {"group": section, "sort_key": place}
        for section, names in zip(sections, _SECTIONS.values(), strict=True)
        for place, name in enumerate(names.split())
    }


def main(arguments: list[str] | None = None) -> int:
    """Run one command. 0: done; 1: failed at its work; 2: wrong usage; 130: Ctrl-C."""
    prepare_streams()
    is_program = arguments is None  # else one goes on after the command
    try:
        code = _run(sys.argv[1:] if arguments is None else arguments)
    except BaseException as error:
        if is_program:
            end_process_by(error)
        raise
    settle_streams()
    if is_program:
        end_process(code)
    return code


def _run(arguments: list[str]) -> int:
    app = build_app()
    try:
        words, config = _take_config(arguments)
        if words[:1] in (["train"], ["resume"]):
            adopt_launcher()
        app.config = () if config is None else (config,)
        wait_asleep_where_shared()
        code = app(words, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        return _fail(explain(error, app), 2, arguments)
    except LinnetError as error:
        return _fail(flags(str(error)), error.exit_code, arguments)
    except ModuleNotFoundError as error:
        missing = missing_extra(error, " ".join(app.parse_commands(words)[0]))
        if missing is None:
            raise
        return _fail(missing, 1, arguments)
    except RecursionError:
        return _fail("something in these files is nested too deeply to be shown", 1, arguments)
    except (MemoryError, RuntimeError) as error:
        shortage = out_of_memory(error)
        if shortage is None:
            raise
        return _fail(shortage, 1, arguments)
    except KeyboardInterrupt:
        with suppress(OSError):
            if sys.stderr.isatty():
                print(file=sys.stderr)  # what the terminal showed of Ctrl-C keeps its line
        return 130
    except BrokenPipeError:  # the reader of a pipe has had enough
        discard(sys.stdout)
        return 0
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # rich, which prints help, ends the process itself then
            return 0
        raise
    except OSError as error:
        if error.filename is not None:
            return _fail(f"{error.filename}: {error.strerror or error}", 1, arguments)
        discard(sys.stdout)
        return _fail(f"cannot write the output: {error.strerror or error}", 1, arguments)


def _fail(message: str, code: int, words: list[str]) -> int:
    """Say what went wrong with a command; of several ranks of a training one does, for all.

    Before they have met they meet for it: it may be wrong on one machine alone, whose rank the others would wait for.
    """
    if words[:1] in (["train"], ["resume"]) and is_one_of_several() and not has_process_group():
        if not _is_told_by_another(message, code, words):
            complain(message if is_first_rank() else f"{rank_name()}: {message}")
    elif is_first_rank():
        complain(message)
    elif code != UsageError.exit_code and not has_process_group():
        complain(f"{rank_name()}: {message}")
    return code


def _is_told_by_another(message: str, code: int, words: list[str]) -> bool:
    """Has rank 0 heard of this one's failure?"""
    try:
        from linnet.train.ranks import fail_together
    except ModuleNotFoundError:  # without torch there are no ranks
        return False
    return fail_together(message, code, dict(pairwise(words)).get("--device", "auto"))


class _ConfigFile:
    """The keys of a TOML file, which are flags without their dashes, as cyclopts asks for them."""

    def __init__(self, path: str) -> None:
        import tomllib  # most commands have no such file

        self.path = path
        try:
            self._values: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except UnicodeDecodeError:
            raise UsageError(f"--config {path}: expected a TOML file in UTF-8, found other bytes") from None
        except tomllib.TOMLDecodeError as error:
            raise UsageError(f"--config {path}: not TOML: {error}") from None
        except FileNotFoundError:
            raise UsageError(f"--config {path}: no such file") from None
        except OSError as error:
            raise UsageError(f"--config {path}: {error.strerror or error}") from None
        for key, value in self._values.items():
            if isinstance(value, dict):
                raise UsageError(f"--config {path}: [{key}] is a table; write flags at the top, as in `steps = 500`")

    def __call__(self, app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
        """Give the flags of a command their values from the file."""
        nested = self._values  # at the top of a Dict, a key that is also a command (`runs`) would be passed over
        for name in reversed(commands):
            nested = {name: nested}
        Dict(nested, source=self.path)(app, commands, arguments)


def _take_config(arguments: list[str]) -> tuple[list[str], _ConfigFile | None]:
    """The arguments without `--config FILE.toml`, and that file; the flags of the command line win over it."""
    other_words: list[str] = []
    path: str | None = None
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if word == "--":
            other_words += [word, *words]
        elif name != "--config":
            other_words.append(word)
        elif path is not None:
            raise UsageError("--config is given more than once; put all flags in one file")
        else:
            path = value if equals else next(words, "")
            if not path:
                raise UsageError("--config needs the name of a TOML file")
    return other_words, _ConfigFile(path) if path is not None else None
