"""Several ranks train what one would, to the bit on a CPU; and any number of them goes on with it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.train.gradients import SumOrder
from tests.conftest import digest, losses
from tests.train.rank_program import run as run_job

PROGRAM = Path(__file__).parent / "rank_program.py"
SHAPE = "--d-model 32 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 64 --ctx 32 --vocab 300 --lr 3e-3"
EIGHT_PARTS = "--batch 2 --batch-tokens 512"
TEXT = f"train from-scratch --corpus CORPUS {SHAPE} {EIGHT_PARTS}"
# Large enough to pass in two halves: two parts, which two ranks share, and four do not.
HALVES = "--d-model 128 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 256 --ctx 128 --batch 16 --vocab 300"
IMAGES = "train vit-tiny --images digits --preset vit-tiny-8 --d-model 32 --n-layers 2 --n-heads 4 --d-ff 64"
CASES = {
    "adamw": TEXT,
    "adamw-eager": f"{TEXT} --graph off --clip 0.5 --file-type q8_0",
    "muon": f"{TEXT} --optimizer muon --graph off",
    "muon-recorded": f"{TEXT} --optimizer muon --graph on --schedule wsd",
    "six-parts": f"train from-scratch --corpus CORPUS {SHAPE} --batch 2 --batch-tokens 384",
    "documents": f"{TEXT} --documents --arch llama --untied --qkv-bias",
    "halves": f"train from-scratch --corpus CORPUS {HALVES}",
    "vit": f"{IMAGES} --batch 4 --batch-images 16 --ema 0.9",
    "warm": "train warm-start --corpus CORPUS --donor ONE/halves/weights/step_6.gguf --init pca --d-model 48"
    f" --n-heads 4 --n-layers 1 --ctx 32 {EIGHT_PARTS}",
}
COMMON = "--steps 6 --seed 1 --device cpu --eval-every 3 --checkpoint-every 3"
OF_TEXT = "--eval-tokens 512 --sample-every 3 --sample-tokens 4 --prompt the"
FLAGS: dict[str, Any] = {
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv": 2,
    "d_ff": 64,
    "ctx": 32,
    "vocab": 300,
    "seed": 3,
    "batch": 2,
    "batch_tokens": 512,
    "steps": 14,
    "device": "cpu",
    "eval_every": 5,
    "sample_every": 0,
    "checkpoint_every": 0,
    "eval_tokens": 512,
    "run_id": "moved",
}
Start = Callable[..., list[Any]]


def words(case: str, root: Path, corpus: Path) -> list[str]:
    common = COMMON if "vit-tiny" in CASES[case] else f"{COMMON} {OF_TEXT}"
    line = f"{CASES[case]} {common}".replace("CORPUS", str(corpus)).replace("ONE", str(root / "1"))
    return line.split()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def start_ranks(count: int, jobs: Sequence[dict[str, Any]], folder: Path, environment: dict[str, str]) -> list[Any]:
    """What each job came to, on rank 0; all ranks must say the same."""
    listed = folder / f"jobs-{count}.json"
    listed.write_text(json.dumps(jobs))
    rendezvous = {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.rank_program", str(listed)],
            env={**os.environ, **environment, **rendezvous, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            | {"LOCAL_WORLD_SIZE": str(count), "OMP_NUM_THREADS": "1"},
            cwd=PROGRAM.parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        told = [process.communicate(timeout=180) for process in started]
    finally:
        for process in started:
            process.kill()
    assert [process.returncode for process in started] == [0] * count, "\n".join(err for _, err in told)
    results = [json.loads(out.splitlines()[-1]) for out, _ in told]
    assert all(result == results[0] for result in results)
    (folder / f"said-{count}").write_text(told[0][0])
    assert not any(out.splitlines()[:-1] for out, _ in told[1:])  # one speaks for all
    return list(results[0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus: Path, cache: Path) -> Path:
    """Every case on 1, 2 and 4 ranks, as `ROOT/<ranks>/<case>`; and a run that went on from 4 to 1 and then 2 ranks."""
    root = tmp_path_factory.mktemp("ranks")
    environment = {"LINNET_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    before = torch.get_num_threads()
    torch.set_num_threads(1)

    def jobs(count: int) -> list[dict[str, Any]]:
        return [
            {"words": [*words(case, root, corpus), "--runs", str(root / str(count)), "--run-id", case]}
            for case in CASES
        ]

    flags = {**FLAGS, "corpus": str(corpus), "cache": str(cache)}
    moved = root / "travels/moved"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINNET_CACHE", str(cache))
        assert [run_job(job) for job in jobs(1)] == [0] * len(CASES)
        linnet.train("from-scratch", **{**flags, "runs": str(root / "1")})
        stopped = {"flags": {**flags, "runs": str(moved.parent)}, "stop": {"rank": 2, "step": 4}}
        assert start_ranks(4, [*jobs(4), stopped], root, environment) == [0] * len(CASES) + ["interrupted"]
        assert run_job({"resume": str(moved), "stop": {"rank": 0, "step": 9}}) == "interrupted"
        on = {"resume": str(moved), "stop": {"rank": 0, "step": 99}}
        assert start_ranks(2, [*jobs(2), on], root, environment) == [0] * len(CASES) + ["completed"]
    torch.set_num_threads(before)
    return root


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", CASES)
def test_losses_and_files_are_those_of_one_rank(trained: Path, case: str, ranks: int) -> None:
    one, many = linnet.open(trained / "1" / case), linnet.open(trained / str(ranks) / case)
    assert many.status == "completed"
    metrics = [run.metrics() for run in (one, many)]
    assert set(metrics[0]) - {"mfu"} == set(metrics[1]) - {"mfu"}
    exact = {"six-parts": 2, "halves": 2}.get(case, 8) % ranks == 0
    for name in ("loss", "lr", "grad_norm", "validation/loss"):
        pair = [series[name].value.tolist() for series in metrics]
        assert len(pair[0]) == (2 if name == "validation/loss" else 6)
        assert pair[0] == (pair[1] if exact else pytest.approx(pair[1], rel=1e-3))
    files = [sorted((run.path / "weights").glob("step_*.gguf")) for run in (one, many)]
    assert [file.name for file in files[0]] == [file.name for file in files[1]] == ["step_3.gguf", "step_6.gguf"]
    if exact:
        assert [digest(file) for file in files[0]] == [digest(file) for file in files[1]]
        assert samples(one) == samples(many)


def samples(run: linnet.Run) -> list[str]:
    return [event.data["text"] for event in run.events().read_events() if event.kind == "sample"]


def test_the_run_says_whether_it_is_that_of_one_rank(trained: Path) -> None:
    for ranks, rounded in ((2, 0), (4, 2)):
        said = (trained / f"said-{ranks}").read_text()
        assert said.count(f"{ranks} ranks on one machine; losses and weights ") == len(CASES)
        assert said.count("as on one rank to rounding") == rounded


def test_a_run_goes_on_on_another_number_of_ranks_to_the_bit(trained: Path) -> None:
    """Four ranks, of which one got SIGTERM in step 4; then one; then two."""
    whole, moved = trained / "1/moved", trained / "travels/moved"
    assert losses(str(moved)) == losses(str(whole))
    assert digest(moved / "weights/step_14.gguf") == digest(whole / "weights/step_14.gguf")
    events = linnet.open(moved).events().read_events()
    chosen = [event.data["chosen"].get("ranks") for event in events if event.kind in ("run_start", "resume")]
    assert chosen == [4, None, 2]
    assert [e.data["step"] for e in events if e.kind == "resume"] != []


@pytest.mark.parametrize(
    ("rows", "at_once", "ranks", "order"),
    [
        (8, 8, 1, SumOrder(1, 1, exact=True)),
        (16, 8, 1, SumOrder(1, 2, exact=True)),
        (24, 8, 1, SumOrder(1, 3, exact=True)),
        (32, 8, 1, SumOrder(2, 2, exact=True)),
        (32, 8, 2, SumOrder(1, 2, exact=True)),
        (32, 8, 4, SumOrder(1, 1, exact=True)),
        (48, 8, 2, SumOrder(1, 3, exact=True)),
        (128, 8, 1, SumOrder(8, 2, exact=True)),
        (128, 8, 4, SumOrder(2, 2, exact=True)),
        (48, 8, 3, SumOrder(1, 2, exact=False)),
        (8, 8, 2, SumOrder(1, 1, exact=False)),
    ],
)
def test_the_order_of_a_sum_depends_on_the_batch_alone(rows: int, at_once: int, ranks: int, order: SumOrder) -> None:
    assert SumOrder.of(rows, at_once, ranks) == order
