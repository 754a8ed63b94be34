"""`linnet`: the list of commands, and how every one of them ends."""

from __future__ import annotations

import os
import sys

from cyclopts import App, CycloptsError, Parameter

from linnet import __version__
from linnet.errors import LinnetError

# name: (what it does, examples). Kept here so that the list of commands can be shown without loading any of them.
_COMMANDS = {
    "runs": (
        "List the runs of a folder, with status and last loss.",
        ["linnet runs", "linnet runs --status completed --sort loss", "linnet runs --runs ablations --tag wide --json"],
    ),
    "show": (
        "Show one run: status, settings, metrics and a chart.",
        ["linnet show", "linnet show llama-20260531-001 --key validation/loss"],
    ),
    "tail": (
        "Follow a run's events as they are written, until it ends.",
        ["linnet tail", "linnet tail llama-2026 --lines 100 --no-follow", "linnet tail --json | jq .loss"],
    ),
    "compare": (
        "Compare runs: what was set differently, and what came of it.",
        ["linnet compare llama-20260531-001 llama-20260531-002", "linnet compare wide narrow --key loss"],
    ),
    "metrics": (
        "Print a run's metrics, with all digits, for other programs.",
        ["linnet metrics", "linnet metrics latest --key loss --format csv > loss.csv"],
    ),
    "note": ("Add a remark to a run.", ['linnet note latest "the good seed; keep"']),
    "delete": (
        "Delete runs, with their checkpoints.",
        ["linnet delete llama-20260531-001", "linnet delete latest --yes"],
    ),
    "check": (
        "Is a run folder sound? What was lost or damaged? Exit code 1 when something was.",
        ["linnet check llama-20260531-001"],
    ),
    "data prepare": (
        "Turn a corpus into tokens to train on, and keep them for the next time.",
        [
            "linnet data prepare",
            "linnet data prepare books/ --vocab 8192",
            "linnet data prepare stories.jsonl.gz --field story --tokenizer donor.gguf",
        ],
    ),
}

# Words that other commands stand behind: `linnet data prepare` is `prepare` in cli/data.py.
_GROUPS = {"data": "Corpora: text, JSONL, Parquet or packs of token ids."}

_ENDING = """
A RUN is an id, the unique beginning of one, a path, or `latest`. The folder of runs is `--runs DIR`, else
`$LINNET_RUNS`, else `./runs`.
"""


def _app() -> App:
    app = App(
        name="linnet",
        help="Train small transformers; every run is a folder you can read, watch and resume.",
        help_epilogue=_ENDING,
        help_format="markdown",
        version=__version__,
        default_parameter=Parameter(negative=(), show_default=False),
    )
    groups = {
        name: App(name=name, help=text, help_epilogue="", help_format="plaintext") for name, text in _GROUPS.items()
    }
    for each in groups.values():
        app.command(each)
    for name, (text, examples) in _COMMANDS.items():
        shown = "Examples:\n\n" + "\n".join(f"    {line}" for line in examples)
        group, _, verb = name.rpartition(" ")
        target = f"linnet.cli.{group or verb}:{verb}"
        place = groups[group] if group else app
        place.command(target, name=verb, help=text, help_epilogue=shown, help_format="plaintext")
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run one command. 0: done; 1: failed at its work; 2: wrong usage."""
    try:
        code = _app()(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        print(f"linnet: {error}", file=sys.stderr)
        return 2
    except LinnetError as error:
        print(f"linnet: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of a pipe has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
