"""The campaigns of `bench/campaign`: a few cases of each, and that they notice what they look for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.campaign.cases import make_case, write_seeds
from bench.campaign.gguf_parts import GGUFParts
from bench.campaign.killed_writers import read_stream
from bench.campaign.seed_models import seed_models

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    write_seeds(folder)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_few_cases_of_each_campaign_find_nothing(tmp_path: Path) -> None:
    words = ["writers=6", "trainings=1", "files=20", "--seed", "85", "--workers", "1", "--home", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.campaign", *words], cwd=REPOSITORY, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| GGUF files" in done.stdout
    assert "NOT REACHED" not in done.stdout


def test_a_case_is_made_again_from_its_number(seeds: Path, tmp_path: Path) -> None:
    for number in range(12):
        files = []
        for name in ("one", "two"):
            (folder := tmp_path / f"{name}-{number}").mkdir()
            case = make_case(7, number, seeds, folder)
            assert 1 <= len(case.commands) <= 3
            files.append(contents(folder))
        assert files[0] == files[1], case


def test_a_file_taken_apart_and_put_together_is_the_same(seeds: Path) -> None:
    for name in seed_models():
        raw = (seeds / f"{name}.gguf").read_bytes()
        assert GGUFParts.of(raw).to_bytes() == raw, name


JUDGED = """
import json, os, sys
shown = os.dup(1)
from bench.campaign.cases import Command
from bench.campaign.judge import Judge

def play(words):
    what = words[0]
    if what == "raise": raise KeyError("loss")
    if what == "escape": print("\\x1b[2J")
    if what == "long": print("x" * 200_000)
    if what == "take": bytearray(800 << 20)
    if what == "mute": return 1
    if what == "odd": print("odd", file=sys.stderr); return 77
    if what == "refuse": print("linnet: no such file", file=sys.stderr); return 2
    return 0

judge = Judge(play)
said = {word: [kind for kind, _ in judge.run(Command([word]), 100)] for word in sys.argv[1:]}
os.write(shown, json.dumps(said).encode())
"""


def test_the_judge_sees_every_kind_of_failure() -> None:
    words = ["well", "raise", "escape", "long", "take", "mute", "odd", "refuse"]
    done = subprocess.run([sys.executable, "-c", JUDGED, *words], cwd=REPOSITORY, capture_output=True, text=True)
    assert json.loads(done.stdout) == {
        "well": [],
        "raise": ["traceback"],
        "escape": ["control character"],
        "long": ["long line"],
        "take": ["memory"],
        "mute": ["no word"],
        "odd": ["exit code"],
        "refuse": [],
    }


HANGING = """
import json, os, sys
import linnet.cli
from pathlib import Path
from bench.campaign import hostile_files

def play(words):
    if str(play.calls) in sys.argv[2]:
        while True: pass
    play.calls += 1
    return 0 if play.calls != 9 else os._exit(5)

play.calls = 1
linnet.cli.main = play
hostile_files.HANG_SECONDS = 0.3
hostile_files.prepare_process = lambda: None
tally = hostile_files.Campaign(Path(sys.argv[1]), 0, 6, workers=1).run()
print(json.dumps([[failure.kind, failure.case] for failure in tally.failures] + [sum(tally.cases.values())]))
"""


def test_a_command_that_hangs_is_ended_and_the_next_case_runs(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HANGING, str(tmp_path), "3"]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    *failures, cases = json.loads(done.stdout)
    assert cases == 6
    assert {kind for kind, _ in failures} == {"hang"}
    assert (tmp_path / "offenders" / f"hang-{failures[0][1]}" / "failure.json").exists()


def test_a_fault_of_the_campaign_itself_is_told(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HANGING.replace("tally =", "hostile_files.make_case = None; tally ="), str(tmp_path)]
    done = subprocess.run([*words, "-"], cwd=REPOSITORY, capture_output=True, text=True, timeout=60)
    assert "the campaign itself failed" in done.stderr


def test_a_torn_stream_is_told_from_a_call_that_was_cut_off(tmp_path: Path) -> None:
    stream = tmp_path / "events.jsonl"
    cut, resumed = '{"kind":"step","loss":', '{"kind":"resume","step":1}'
    stream.write_text(f'{{"mark":3}}\n{{"text":"mark 4"}}\n{{"train/mark":5}}\n{cut}\n{resumed}\n{{"mark":6}}\n{cut}')
    assert read_stream(stream) == (2, 0, {3, 4, 5, 6})
    stream.write_text(f'{cut}\n{{"mark":3}}\n\n{{"mark":4}}\n')
    assert read_stream(stream) == (0, 2, {3, 4})
