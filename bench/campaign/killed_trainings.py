"""Trainings killed at random moments and resumed until they end: the same losses, the same bytes, nothing left over.

Each training is killed one to four times: by SIGKILL after a random time, by SIGKILL before a file operation picked at
random (so that the middle of a checkpoint is met), or by SIGTERM, SIGINT or SIGHUP. Then it is let end and compared
with the one that nobody disturbed. Torch is loaded once; each attempt is a fork.
"""

import hashlib
import os
import pickle
import random
import shutil
import signal
import sys
import sysconfig
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STEPS = 24
_TEXT = ["train", "from-scratch", "--preset", "tiny", "--vocab", "384", "--batch", "2", "--ctx", "32"]
_TEXT += ["--eval-tokens", "512", "--sample-tokens", "4", "--warmup", "2"]
_IMAGES = ["train", "vit-tiny", "--preset", "vit-tiny-8", "--batch", "8", "--eval-images", "40", "--warmup", "2"]
_COMMON = ["--steps", str(STEPS), "--device", "cpu", "--run-id", "run"]
_FILE_EVENTS = ("open", "os.rename", "os.symlink", "os.link", "os.remove", "os.mkdir", "os.truncate", "os.listdir")
_LONGEST = 120.0  # seconds of one attempt; then it hangs


@dataclass(frozen=True)
class Kind:
    """A training: its flags, and whether signals may end it (they take a checkpoint of their own, at any step)."""

    name: str
    words: tuple[str, ...]
    signals: bool = True


_EVERY = ("--checkpoint-every", "4", "--eval-every", "8")
KINDS = (
    Kind("llama", (*_TEXT, *_EVERY)),
    Kind("llama, Muon", (*_TEXT, *_EVERY, "--optimizer", "muon")),
    Kind("llama, bf16 files", (*_TEXT, *_EVERY, "--file-type", "bf16", "--keep", "2")),
    Kind(
        "llama, every checkpoint",
        (*_TEXT, "--checkpoint-every", "3", "--eval-every", "5", "--keep", "0"),
        signals=False,
    ),
    Kind("GPT-2", (*_TEXT, *_EVERY, "--arch", "gpt2")),
    Kind("GPT-2, Muon", (*_TEXT, *_EVERY, "--arch", "gpt2", "--optimizer", "muon", "--batch-tokens", "128")),
    Kind("ViT", (*_IMAGES, *_EVERY)),
)


@dataclass
class Tally:
    """What the trainings of one kind gave."""

    trainings: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    not_completed: int = 0
    other_losses: int = 0
    other_bytes: int = 0
    other_links: int = 0
    leftovers: int = 0
    unsound: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Take in another's figures."""
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def failures(self) -> int:
        """Everything that must not be."""
        wrong = self.other_losses + self.other_bytes + self.other_links
        return self.not_completed + wrong + self.leftovers + self.unsound


@dataclass
class Outcome:
    """What a training leaves: metrics by name, a digest for each file of weights, and where its links lead."""

    metrics: dict[str, dict[int, float]]
    weights: dict[str, str]
    links: dict[str, str]
    leftovers: list[str]
    sound: bool
    faults: list[str]


@dataclass
class Undisturbed:
    """How the training goes when nobody disturbs it; how long it takes, and how many file operations in its folder."""

    outcome: Outcome
    seconds: float
    operations: int


def prepare_process() -> None:
    """Load torch and all that trains, before the forks, without letting any of it work; one thread."""
    os.environ |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_WAIT_POLICY": "PASSIVE"}
    import torch

    torch.set_num_threads(1)
    import safetensors.torch
    import tokenizers
    import torch._dynamo  # the first optimizer of a process loads it, which takes longer than such a training

    import linnet.cli
    import linnet.recipes.training
    import linnet.recipes.vit_tiny
    import linnet.train.loop

    del torch, safetensors, tokenizers, linnet


def write_material(home: Path) -> tuple[Path, Path]:
    """A corpus (two packages of the standard library) and some images of noise."""
    import numpy as np

    corpus, images = home / "corpus", home / "images.npz"
    corpus.mkdir(parents=True, exist_ok=True)
    stdlib = Path(sysconfig.get_path("stdlib"))
    for package in ("json", "logging"):
        for file in sorted((stdlib / package).glob("*.py")):
            shutil.copy(file, corpus / f"{package}_{file.name}")
    chance = np.random.default_rng(0)
    labels = chance.integers(0, 4, 200)
    pixels = (chance.integers(0, 128, (200, 8, 8)) + 32 * labels[:, None, None]).astype(np.uint8)
    np.savez(images, x=pixels, y=labels)
    return corpus, images


class Attempt:
    """A child that runs one command."""

    def __init__(
        self, words: list[str], output: Path, hook: Callable[[str, tuple[Any, ...]], None] | None = None
    ) -> None:
        self.began = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            code = 70
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background ignores some
                for number in (signal.SIGTERM, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)
                with output.open("a") as file:
                    os.dup2(file.fileno(), 1)
                    os.dup2(file.fileno(), 2)
                from linnet.cli import main

                if hook is not None:
                    sys.addaudithook(hook)
                code = main(words)
                sys.stdout.flush()
            except SystemExit as leaving:
                code = leaving.code if isinstance(leaving.code, int) else 1
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)

    def wait(self, seconds: float) -> int | None:
        """The exit code, or None when it has not ended after so many seconds from its beginning."""
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() - self.began > seconds:
                return None
            time.sleep(0.002)

    def end(self, number: int) -> int:
        """Send a signal and wait; what does not end in time is killed."""
        os.kill(self.pid, number)
        while time.monotonic() - self.began < _LONGEST:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.002)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return 124


class Operations:
    """An audit hook that counts the file operations in a folder; before the n-th this process kills itself."""

    def __init__(self, folder: Path, last: int = 0, count_in: Path | None = None) -> None:
        self._folder, self._last, self._count_in = str(folder), last, count_in
        self._seen = 0

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Called by the interpreter before each of its operations."""
        if event not in _FILE_EVENTS or not arguments or self._folder not in str(arguments[0]):
            return
        self._seen += 1
        if self._count_in is not None:
            out = os.open(self._count_in, os.O_WRONLY | os.O_CREAT | os.O_APPEND)  # not in the folder: not counted
            os.write(out, b".")
            os.close(out)
        if self._seen == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def run_campaign(
    home: Path, seed: int, count: int, kinds: tuple[Kind, ...] = KINDS, workers: int = 2
) -> dict[str, Tally]:
    """So many trainings, the kinds in turn, in `workers` processes; what came of them, by kind."""
    home.mkdir(parents=True, exist_ok=True)
    material = write_material(home)
    prepare_process()
    pipes = []
    for worker in range(workers):
        reading, writing = os.pipe()
        if os.fork() == 0:
            code = 1
            try:
                tallies = Campaign(home / f"worker-{worker}", seed, *material).run(range(worker, count, workers), kinds)
                with os.fdopen(writing, "wb") as out:
                    pickle.dump(tallies, out)
                code = 0
            finally:
                os._exit(code)
        os.close(writing)
        pipes.append(os.fdopen(reading, "rb"))
    found = {kind.name: Tally() for kind in kinds}
    for pipe in pipes:
        with pipe:
            for name, tally in pickle.load(pipe).items():
                found[name].add(tally)
        os.wait()
    return found


class Campaign:
    """Trainings in `home`, one at a time."""

    def __init__(self, home: Path, seed: int, corpus: Path, images: Path) -> None:
        self.home, self.seed = home, seed
        self._corpus, self._images = corpus, images
        self._runs = home / "runs"
        self._log = home / "output.txt"
        self._undisturbed: dict[str, Undisturbed] = {}

    def words(self, kind: Kind) -> list[str]:
        """The command of a training."""
        material = ["--images", str(self._images)] if "vit-tiny" in kind.words else ["--corpus", str(self._corpus)]
        return [*kind.words, *_COMMON, *material, "--runs", str(self._runs)]

    def run(self, numbers: range, kinds: tuple[Kind, ...] = KINDS) -> dict[str, Tally]:
        """The cases of these numbers."""
        self.home.mkdir(parents=True, exist_ok=True)
        os.environ["LINNET_CACHE"] = str(self.home / "cache")
        tallies = {kind.name: Tally() for kind in kinds}
        for done, number in enumerate(numbers, 1):
            kind = kinds[number % len(kinds)]
            self.run_case(number, kind, tallies[kind.name])
            if done % 10 == 0:
                failures = sum(tally.failures for tally in tallies.values())
                print(f"  {done} of {len(numbers)} trainings, {failures} failures", file=sys.stderr, flush=True)
        shutil.rmtree(self._runs, ignore_errors=True)
        return tallies

    def run_case(self, number: int, kind: Kind, tally: Tally) -> None:
        """One training: killed, resumed, killed, let end; then compared."""
        dice = random.Random(f"{self.seed}/{number}")
        alone = self._alone(kind)
        run = self._runs / "run"
        shutil.rmtree(self._runs, ignore_errors=True)
        self._log.write_text("")
        signalled = False
        code: int | None = None
        story: list[str] = []
        for _ in range(dice.choice((1, 2, 2, 3, 4))):
            how, code = self._disturb(kind, dice, alone)
            while code == 0 and not story:  # it was quicker, and nothing has disturbed it yet: once more
                shutil.rmtree(self._runs)
                how, code = self._disturb(kind, dice, alone)
            story.append(f"{how} → {code}")
            if code == 0 or self._is_complete(run):  # the kill came when everything was done
                code = 0
                break
            tally.kills[how.split(" ")[0]] += 1
            signalled |= not how.startswith("SIGKILL")
        if code != 0:
            code = Attempt(self._next_words(kind), self._log).wait(_LONGEST)
            story.append(f"let end → {code}")
        tally.trainings += 1
        with (self.home / "cases.txt").open("a") as told:
            told.write(f"case {number}, {kind.name}: {', '.join(story)}\n")
        faults = self._compare(tally, run, alone.outcome, signalled, code)
        if faults:
            text = f"case {number}, {kind.name}: {'; '.join(faults)} ({', '.join(story)})"
            tally.faults.append(text)
            print(f"  {text}", file=sys.stderr, flush=True)
            aside = self.home / "offenders" / f"training-{number}"
            shutil.rmtree(aside, ignore_errors=True)
            shutil.copytree(self._runs, aside, symlinks=True)
            shutil.copy(self._log, aside / "output.txt")

    @staticmethod
    def _is_complete(run: Path) -> bool:
        from linnet.runs import Run, RunError

        try:
            return Run.load(run).status == "completed"
        except RunError:  # killed before there was one
            return False

    def _alone(self, kind: Kind) -> Undisturbed:
        if kind.name not in self._undisturbed:
            if "--vocab" in kind.words:  # so that its time is not that of preparing the corpus
                vocab = kind.words[kind.words.index("--vocab") + 1]
                Attempt(["data", "prepare", str(self._corpus), "--vocab", vocab], self._log).wait(10 * _LONGEST)
            shutil.rmtree(self._runs, ignore_errors=True)
            counted = self.home / "operations"
            counted.unlink(missing_ok=True)
            attempt = Attempt(self.words(kind), self._log, Operations(self._runs, count_in=counted).hook)
            if attempt.wait(10 * _LONGEST) != 0:
                raise RuntimeError(f"{kind.name} does not train:\n{self._log.read_text()[-3000:]}")
            seconds = time.monotonic() - attempt.began
            outcome = outcome_of(self._runs / "run")
            self._undisturbed[kind.name] = Undisturbed(outcome, seconds, counted.stat().st_size)
        return self._undisturbed[kind.name]

    def _next_words(self, kind: Kind) -> list[str]:
        """Resume where there is a checkpoint; else begin again."""
        from linnet.train.state import steps_with_state

        run = self._runs / "run"
        if run.exists() and steps_with_state(run):
            return ["resume", "run", "--runs", str(self._runs)]
        shutil.rmtree(self._runs, ignore_errors=True)
        return self.words(kind)

    def _disturb(self, kind: Kind, dice: random.Random, alone: Undisturbed) -> tuple[str, int]:
        """Run on, and end it somehow: how, and the exit code (0: it was quicker)."""
        words = self._next_words(kind)
        names = ("SIGKILL", "SIGKILL at", "SIGTERM", "SIGINT", "SIGHUP")
        how = dice.choices(names, (45, 35, 8, 6, 6) if kind.signals else (60, 40, 0, 0, 0))[0]
        share = 1 - dice.random() ** 2 if words[0] == "train" else dice.random()
        if how == "SIGKILL at":
            last = max(1, int(share * alone.operations))
            code = Attempt(words, self._log, Operations(self._runs, last).hook).wait(_LONGEST)
            return f"{how} operation {last}", 124 if code is None else code
        attempt = Attempt(words, self._log)
        seconds = share * alone.seconds
        code = attempt.wait(seconds)
        if code is None:
            code = attempt.end(getattr(signal, how))
        return f"{how} after {seconds:.2f} s", code

    def _compare(self, tally: Tally, run: Path, alone: Outcome, signalled: bool, code: int | None) -> list[str]:
        if code != 0:
            tally.not_completed += 1
            return [f"not completed: {code}"]
        here = outcome_of(run)
        faults = []
        wrong = [name for name in alone.metrics if here.metrics.get(name) != alone.metrics[name]]
        if wrong:
            tally.other_losses += 1
            faults.append(f"other values of {', '.join(wrong)}")
        common = {f"step_{STEPS}.gguf"} | (set(alone.weights) & set(here.weights))
        other = sorted(name for name in common if here.weights.get(name) != alone.weights[name])
        if other:
            tally.other_bytes += 1
            faults.append(f"other bytes: {', '.join(other)}")
        if here.links != alone.links:
            tally.other_links += 1
            faults.append(f"links lead to {here.links}, not {alone.links}")
        # A signal takes a checkpoint of its own, which counts among those that are kept.
        kept = [] if signalled else [f"weights/{name}" for name in sorted(set(here.weights) ^ set(alone.weights))]
        if strange := here.leftovers + kept:
            tally.leftovers += 1
            faults.append(f"left over or missing: {', '.join(strange)}")
        if not here.sound:
            tally.unsound += 1
            faults.append(f"check: {'; '.join(here.faults)}")
        return faults


def outcome_of(run: Path) -> Outcome:
    """Look at what a training left, by Linnet's reader and by plain reading."""
    import linnet
    from linnet.runs import examine

    opened = linnet.open(run)
    metrics = opened.metrics()
    named = [name for name in ("loss", "lr", "grad_norm", "validation/loss") if name in metrics]
    values = {name: dict(zip(metrics[name].step.tolist(), metrics[name].value.tolist(), strict=True)) for name in named}
    weights = sorted((run / "weights").iterdir())
    files = [file for file in weights if file.name.startswith("step_") and file.suffix == ".gguf"]
    links = {file.name: link_target(file) for file in weights if file.name in ("latest", "best")}
    states = sorted((run / "state").iterdir()) if (run / "state").exists() else []
    strange = [file for file in weights if file not in files and file.name not in ("latest", "best")]
    strange += [file for file in states if not (file.name.startswith("step_") and file.suffix == ".safetensors")]
    findings = examine(opened)
    return Outcome(
        metrics=values,
        weights={file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files},
        links=links,
        leftovers=[f"{file.parent.name}/{file.name}" for file in strange],
        sound=findings.sound and findings.status == "completed",
        faults=[findings.status, *findings.faults],
    )


def link_target(link: Path) -> str:
    """The file that a link of a weights folder leads to."""
    from linnet.gguf import resolve_link

    return resolve_link(link).name
