"""What one case of the campaign of hostile files is: some files, and the commands that are to read them."""

import random
from dataclasses import dataclass, field
from pathlib import Path

from bench.campaign import mutated_data, mutated_models, mutated_runs
from bench.campaign.seed_models import seed_models

_TESTS = Path(__file__).parents[2] / "tests"
_DIALECTS = ("linnet", "linnet", "linnet", "toy", "kaun-board", "munin")
_TYPES = ("f32", "f16", "bf16", "q8_0")
_VIEWS = ("metrics", "system", "runs", "samples", "checkpoints", "config", "notes", "log")


@dataclass
class Command:
    """Words for the command line; `terminal`: its output is one (without colour)."""

    words: list[str]
    terminal: bool = False


@dataclass
class Case:
    """One mutated file or folder. `kind`: what it was before; `faults`: what was done to it."""

    number: int
    kind: str
    faults: list[str]
    commands: list[Command] = field(default_factory=list)
    size: int = 0


def write_seeds(folder: Path) -> None:
    """The sound files that cases are made of, once for all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, write in seed_models().items():
        write(folder / f"{name}.gguf")
    (folder / "text.txt").write_bytes(b"the whale was there when it rose out of the sea\n" * 40)
    (folder / "picture.png").write_bytes(mutated_data.png(9, 7, bytes(7 * 10)))


def make_case(seed: int, number: int, seeds: Path, folder: Path) -> Case:
    """Case `number` of a campaign: the same for the same seed, on any machine."""
    dice = random.Random(f"{seed}/{number}")
    kind = dice.choices(("model", "run", "data"), (55, 33, 12))[0]
    make = {"model": _model, "run": _run, "data": _data}[kind]
    case = make(dice, number, seeds, folder)
    case.size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return case


def _model(dice: random.Random, number: int, seeds: Path, folder: Path) -> Case:
    files = sorted(seeds.glob("*.gguf"))
    common = [file for file in files if file.stat().st_size < 130_000]
    sound = dice.choice(common if dice.random() < 0.8 else files)
    raw, faults = mutated_models.mutate(dice, sound.read_bytes())
    path = folder / "mutated.gguf"
    path.write_bytes(raw)
    file, out = str(path), str(folder / "out.gguf")
    looking = (
        ["inspect", file],
        ["inspect", file, "--metadata"],
        ["inspect", file, "--tensors", "--metadata", "--json"],
        ["check", file],
        ["check", file, "--json"],
    )
    using = [
        ["generate", file, "--prompt", "Hello", "--max-tokens", "4"],
        ["generate", file, "--prompt", "Hello", "--max-tokens", "4", "--json"],
        ["eval", file, "--prompt", "Hello"],
        ["convert", file, out, "--type", dice.choice(_TYPES)],
        ["lens", file, "--d-model", "8", "--out", out],
    ]
    if sound.stem.startswith("vit"):
        using = [
            ["classify", file, str(seeds / "picture.png")],
            ["classify", file, str(seeds / "picture.png"), "--json"],
            ["convert", file, out, "--type", dice.choice(_TYPES)],
        ]
    elif dice.random() < 0.03:
        corpus = ["data", "prepare", str(seeds / "text.txt"), "--workers", "1", "--cache", str(folder / "cache")]
        using = [[*corpus, "--tokenizer", file]]
    chosen = [dice.choice(looking), dice.choice(using)]
    commands = [Command(words, terminal=dice.random() < 0.5) for words in chosen]
    return Case(number, f"model/{sound.stem}", faults, commands)


def _run(dice: random.Random, number: int, seeds: Path, folder: Path) -> Case:
    dialect = dice.choice(_DIALECTS)
    sound = mutated_runs.sound_run(dialect, _TESTS)
    changed, faults = mutated_runs.mutate(dice, sound)
    runs = folder / "runs"
    for name, files in (("mutated", changed), ("sound", mutated_runs.sound_run("linnet", _TESTS))):
        (runs / name).mkdir(parents=True)
        for file, raw in files.items():
            (runs / name / file).write_bytes(raw)
    root, run = ["--runs", str(runs)], str(runs / "mutated")
    every = (
        ["runs", *root],
        ["runs", *root, "--json"],
        ["runs", *root, "--sort", dice.choice(("loss", "name", "time"))],
        ["show", run],
        ["show", run, "--json"],
        ["tail", run, "--no-follow", "--lines", "50"],
        ["tail", run, "--no-follow", "--json"],
        ["metrics", run],
        ["metrics", run, "--format", dice.choice(("csv", "json"))],
        ["compare", str(runs / "sound"), run],
        ["compare", run, str(runs / "sound"), "--json"],
        ["check", run],
        ["check", run, "--json"],
        ["board", run, "--once", "--size", dice.choice(("60x20", "120x40"))],
        ["board", run, str(runs / "sound"), "--once", "--size", "100x30"],
        ["board", run, "--once", "--view", dice.choice(_VIEWS), *root],
    )
    commands = [Command(words, terminal=dice.random() < 0.5) for words in dice.sample(every, 3)]
    return Case(number, f"run/{dialect}", faults, commands)


def _data(dice: random.Random, number: int, seeds: Path, folder: Path) -> Case:
    name = dice.choice((*mutated_data.TEXTS, *mutated_data.IMAGES))
    if name in mutated_data.TEXTS:
        raw, faults = mutated_data.corpus(dice, name)
        (folder / name).write_bytes(raw)
        words = ["data", "prepare", str(folder / name), "--workers", "1", "--cache", str(folder / "cache")]
        words += ["--vocab", "300"] if not name.startswith(("ids", "pack")) or dice.random() < 0.5 else []
        words += ["--json"] if dice.random() < 0.3 else []
        return Case(number, f"data/{name}", faults, [Command(words)])
    files, faults = mutated_data.images(dice, name)
    for file, raw in files.items():
        (folder / file).write_bytes(raw)
    place = folder / "images.npz" if name == "images.npz" else folder
    words = ["eval", str(seeds / "vit.gguf"), "--images", str(place)]
    if name == "picture.png":
        words = ["classify", str(seeds / f"{dice.choice(('vit', 'vit-cls'))}.gguf"), str(folder / name)]
    return Case(number, f"data/{name}", faults, [Command(words)])
