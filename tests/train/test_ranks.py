"""Several ranks train what one would, to the bit on a CPU; and any number of them goes on with it."""

from __future__ import annotations

import json
import re
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.cli import main
from linnet.train.gradients import SumOrder
from tests.conftest import digest, losses
from tests.data.chats import chats
from tests.s3 import s3_server, use_s3
from tests.scale.forked_ranks import fork_ranks
from tests.train.rank_program import main as run_jobs
from tests.train.rank_program import run as run_job

SHAPE = "--d-model 32 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 64 --ctx 32 --vocab 300 --lr 3e-3"
EIGHT_PARTS = "--batch 2 --batch-tokens 512"
TEXT = f"train from-scratch --corpus CORPUS {SHAPE} {EIGHT_PARTS}"
# Large enough to pass in two halves: two parts, which two ranks share, and four do not.
HALVES = "--d-model 128 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 256 --ctx 128 --batch 16 --vocab 300 --lr 1e-3"
IMAGES = "train vit-tiny --images digits --preset vit-tiny-8 --d-model 32 --n-layers 2 --n-heads 4 --d-ff 64"
TAUGHT = (
    "train from-scratch --corpus CORPUS --teacher ONE/halves/weights/step_4.gguf --d-model 32 --n-heads 4 --n-kv 2"
    f" --n-layers 1 --ctx 32 {EIGHT_PARTS}"
)
CASES = {
    "adamw": f"{TEXT} --optimizer adamw",
    "recomputed": f"{TEXT} --dropout 0.2 --optimizer adamw --recompute blocks --clip 0.5 --file-type q8_0",
    "muon": f"{TEXT} --optimizer muon --graph on --schedule wsd",
    "sharded": f"{TEXT} --optimizer adamw --shard moments --documents --untied --qkv-bias",
    "sharded-muon": f"{TEXT} --optimizer muon --shard moments --file-type bf16 --recompute cheap",
    # In parts of which two ranks make one sum: of smaller ones, and of four ranks, nothing may begin early.
    "overlapped": f"train from-scratch --corpus CORPUS {SHAPE} --batch 4 --batch-tokens 512 --optimizer adamw"
    " --overlap on --graph off",
    "weights": f"{TEXT} --dropout 0.1 --shard weights --optimizer muon --recompute blocks",
    "six-parts": f"train from-scratch --corpus CORPUS {SHAPE} --batch 2 --batch-tokens 384",
    "halves": f"train from-scratch --corpus CORPUS {HALVES} --optimizer adamw",
    "vit": f"{IMAGES} --batch 4 --batch-images 16 --ema 0.9",
    "warm": "train warm-start --corpus CORPUS --donor ONE/halves/weights/step_4.gguf --init pca --d-model 48"
    f" --n-heads 4 --n-layers 1 --ctx 32 {EIGHT_PARTS}",
    "lora": "train lora --base ONE/halves/weights/step_4.gguf --corpus CORPUS --rank 4 --dropout 0.2 --ctx 32"
    f" {EIGHT_PARTS}",
    "chats": "train from-scratch --corpus CHATS --d-model 32 --n-layers 1 --n-heads 4 --n-kv 2 --d-ff 64 --ctx 96"
    " --vocab 300 --batch 2 --batch-tokens 768 --held-out 0.1",
    "taught": f"{TAUGHT} --shard moments --documents",
    "taught-weights": f"{TAUGHT} --shard weights",
}
INSPECTED = ("overlapped", "muon", "sharded", "vit")  # by two ranks, which changes nothing
# What two ranks are asked for besides.
OTHERS = {
    "dry-run": "train from-scratch --dry-run --json",
    "by the clock": f"{TEXT} --seed 1 --device cpu --minutes 0.03 --eval-every 3 --sample-every 0 --run-id clock",
    "from a store": "resume s3://shelf/runs/muon --steps 6",
}
COMMON = "--steps 4 --seed 1 --device cpu --eval-every 2 --checkpoint-every 2"
OF_TEXT = "--eval-tokens 512 --sample-every 4 --sample-tokens 4 --prompt the"
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
    "steps": 9,
    "device": "cpu",
    "eval_every": 4,
    "sample_every": 0,
    "checkpoint_every": 0,
    "eval_tokens": 512,
    "run_id": "moved",
}


def words(case: str, root: Path, corpus: Path) -> list[str]:
    common = COMMON if "vit-tiny" in CASES[case] else f"{COMMON} {OF_TEXT}"
    line = f"{CASES[case]} {common}".replace("CORPUS", str(corpus)).replace("ONE", str(root / "1"))
    return line.replace("CHATS", str(root / "chat.jsonl")).split()


def start_ranks(count: int, jobs: Sequence[dict[str, Any]], folder: Path) -> list[Any]:
    """What each job came to, on rank 0; all ranks must say the same."""
    outputs = folder / f"outputs-{count}"
    outputs.mkdir()
    (outputs / "jobs.json").write_text(json.dumps(jobs))
    started = fork_ranks([str(outputs / "jobs.json")], outputs, count, program=run_jobs)
    try:
        ended = [rank.end(600) for rank in started]
    finally:
        for rank in started:
            rank.process.kill()
    assert [code for code, _, _ in ended] == [0] * count, "\n".join(err for _, _, err in ended)
    results = [json.loads(out.splitlines()[-1]) for _, out, _ in ended]
    assert all(result == results[0] for result in results)
    assert not any(out.splitlines()[:-1] or "linnet:" in err for _, out, err in ended[1:])  # one speaks for all
    return list(results[0])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, corpus: Path, cache: Path) -> Path:
    """Every case on 1, 2 and 4 ranks, as `ROOT/<ranks>/<case>`; and a run that went on from 4 to 1 and then 2 ranks."""
    root = tmp_path_factory.mktemp("ranks")
    chats(root / "chat.jsonl", 60)
    before = torch.get_num_threads()
    torch.set_num_threads(1)

    def jobs(count: int) -> list[dict[str, Any]]:
        return [
            {
                "words": [*words(case, root, corpus), "--runs", str(root / str(count)), "--run-id", case]
                + (["--inspect", "all@3"] if count == 2 and case in INSPECTED else [])
            }
            for case in CASES
        ]

    flags = {**FLAGS, "corpus": str(corpus), "cache": str(cache)}
    moved = root / "travels/moved"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINNET_CACHE", str(cache))
        patch.setenv("OMP_NUM_THREADS", "1")
        assert [run_job(job) for job in jobs(1)] == [0] * len(CASES)
        linnet.train("from-scratch", **{**flags, "runs": str(root / "1")})
        stopped = {"flags": {**flags, "runs": str(moved.parent)}, "stop": {"rank": 2, "step": 3}}
        assert start_ranks(4, [*jobs(4), stopped], root) == [0] * len(CASES) + ["interrupted"]
        assert run_job({"resume": str(moved), "stop": {"rank": 0, "step": 6}}) == "interrupted"
        on = {"resume": str(moved), "stop": {"rank": 0, "step": 99}}
        with s3_server("shelf") as address:
            use_s3(patch, address)
            assert main(["mirror", str(root / "1/muon"), "s3://shelf/runs"]) == 0
            others = [{"words": [*line.split(), "--runs", str(root / "others")]} for line in OTHERS.values()]
            others[0]["words"] += words("adamw", root, corpus)[2:]
            others[1]["words"] = [word.replace("CORPUS", str(corpus)) for word in others[1]["words"]]
            results = start_ranks(2, [*jobs(2), on, *others], root)
        assert results == [0] * len(CASES) + ["completed"] + [0] * len(OTHERS)
        shutil.copytree(root / "1/muon", root / "alone/muon", symlinks=True)
        assert main(["resume", str(root / "alone/muon"), "--steps", "6"]) == 0
    torch.set_num_threads(before)
    return root


def samples(run: linnet.Run) -> list[str]:
    return [event.data["text"] for event in run.events().read_events() if event.kind == "sample"]


def compare(one: linnet.Run, many: linnet.Run, *, exact: bool) -> None:
    assert many.status == "completed"
    metrics = [run.metrics() for run in (one, many)]
    apart = ("mfu", "sys/", "drift/", "mask/")
    names = [{name for name in series if not name.startswith(apart)} for series in metrics]
    assert names[0] == names[1]
    for name in ("loss", "lr", "grad_norm", "validation/loss"):
        pair = [series[name].value.tolist() for series in metrics]
        assert len(pair[0]) == (2 if name == "validation/loss" else 4)
        assert pair[0] == (pair[1] if exact else pytest.approx(pair[1], rel=1e-3)), (many.path, name)
    files = [sorted((run.path / "weights").glob("step_*.gguf")) for run in (one, many)]
    assert [file.name for file in files[0]] == [file.name for file in files[1]] == ["step_2.gguf", "step_4.gguf"]
    if exact:
        assert [digest(file) for file in files[0]] == [digest(file) for file in files[1]], many.path
        assert samples(one) == samples(many)
    if many.path.name == "weights":  # each rank has some rows: nobody writes samples
        assert not samples(many) and samples(one)


def test_two_and_four_ranks_train_what_one_does_and_go_on_with_each_others_runs(trained: Path) -> None:
    """One test, since the runs behind it are made by six processes."""
    trained_besides = {2: 2, 4: 0}  # of `OTHERS`
    sharded = ("weights", "taught-weights")
    for ranks, rounded in ((2, sharded), (4, (*sharded, "six-parts", "halves"))):
        for case in CASES:
            one, many = linnet.open(trained / "1" / case), linnet.open(trained / str(ranks) / case)
            compare(one, many, exact=case not in rounded)
        said = (trained / f"outputs-{ranks}/rank0.out").read_text()
        assert said.count(f"{ranks} ranks on one machine; losses and weights ") == len(CASES) + trained_besides[ranks]
        assert said.count("as on one rank to rounding") == len(rounded)
    for case in INSPECTED:  # rank 0 looks, and what it looks at is the sum of both
        events = linnet.open(trained / "2" / case).events().read_events()
        whole = [event for event in events if event.kind == "grad" and event.step == 1 and "head" not in event.data]
        norm = sum(event.data["l2"] ** 2 for event in whole) ** 0.5
        first = next(event for event in events if event.kind == "step")
        assert norm == pytest.approx(first.data["grad_norm"], rel=1e-4)
    others, said = trained / "others", (trained / "outputs-2/rank0.out").read_text()
    plans = [json.loads(text) for text in re.findall(r"^\{$.*?^\}$", said, re.M | re.S)]  # a dry run: no run is made
    assert [plan["steps"] for plan in plans] == [4] and plans[0]["step_seconds"] > 0
    assert sorted(path.name for path in others.iterdir()) == ["clock", "muon"]
    clock = linnet.open(others / "clock")  # whose ranks have ended at the same step, else they would still wait
    last = list(losses(str(others / "clock")))[-1]
    assert (clock.status, clock.manifest.total_steps) == ("completed", last) and last >= 5
    assert clock.checkpoints()[-1].name == f"step_{last}.gguf"
    assert losses(str(others / "muon")) == losses(str(trained / "alone/muon"))  # fetched by rank 0 for both
    # Four ranks, of which one got SIGTERM in step 3; then one; then two.
    whole, moved = trained / "1/moved", trained / "travels/moved"
    assert losses(str(moved)) == losses(str(whole))
    assert digest(moved / "weights/step_9.gguf") == digest(whole / "weights/step_9.gguf")
    events = linnet.open(moved).events().read_events()
    sessions = [event.data["chosen"].get("ranks") for event in events if event.kind in ("run_start", "resume")]
    assert sessions == [4, None, 2]
    overlaps = [
        linnet.open(trained / ranks / "overlapped").events().read_events()[0].data["chosen"]["overlap"]
        for ranks in ("1", "2", "4")
    ]
    assert overlaps == ["off", "on", "off"]


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


WRONG = {
    "cannot be shared": ("--batch 3", 2, "--batch-tokens 96 is 3 rows, which 2 ranks cannot share evenly"),
    "too few rows": ("--batch 1", 2, "--batch-tokens 32 is 1 rows, too few for 2 ranks"),
    "other flags": ("--batch 2 --seed RANK", 1, "has another --seed than rank 0 on"),
    "other data": ("--batch 2 --corpus CORPUS-RANK", 1, "has another fingerprint of its data than rank 0 on"),
    "weights that nobody has whole": (
        "--batch 2 --shard weights --inspect taps",
        2,
        "--inspect looks at whole weights, and with --shard weights no rank has them",
    ),
    "no such baseline": ("--batch 2 --baseline lost", 1, "--baseline: no run 'lost' in the folder"),
    "no data on one": ("--batch 2 --corpus CORPUS-RANK-missing", 1, "rank 1 on HOST: "),
    "another folder": (
        "--batch 2 --runs ROOT/rank-RANK",
        1,
        "is not on shared storage: rank 1 on HOST does not see it",
    ),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory, corpus: Path, cache: Path) -> tuple[list[Any], list[str]]:
    """What two ranks came to with each of `WRONG`, then with two versions, then with a bit that changed; and errors."""
    root = tmp_path_factory.mktemp("refused")
    for name in ("0", "1", "0-missing"):
        (root / f"text-{name}").mkdir()
        for file in sorted(corpus.iterdir())[: 4 if name == "1" else 6]:
            (root / f"text-{name}" / file.name).write_bytes(file.read_bytes())
    common = f"train from-scratch {SHAPE} --steps 2 --device cpu --eval-every 0 --sample-every 0"
    jobs: list[dict[str, Any]] = []
    for flags, _, _ in WRONG.values():
        line = flags if "--corpus" in flags else f"--corpus CORPUS-0 {flags}"
        line = line if "--runs" in flags else f"{line} --runs ROOT/runs"
        jobs.append(
            {"words": f"{common} {line}".replace("CORPUS", str(root / "text")).replace("ROOT", str(root)).split()}
        )
    jobs.append({"version": "9.9", "of": f"{common} --batch 2 --corpus {root}/text-0 --runs {root}/runs".split()})
    flags = {**FLAGS, "corpus": str(root / "text-0"), "runs": str(root / "runs"), "run_id": "flipped", "eval_every": 2}
    flags |= {"shard": "none", "optimizer": "adamw"}  # else the owner of the weight would send it whole again
    jobs.append({"flip": {"rank": 1, "step": 3}, "flags": {**flags, "cache": str(cache)}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LINNET_CACHE", str(cache))
        results = start_ranks(2, jobs, root)
    assert [path.name for path in (root / "runs").iterdir()] == ["flipped"]
    assert linnet.open(root / "runs/flipped").status == "errored"
    errors = [line for line in (root / "outputs-2/rank0.err").read_text().splitlines() if line.startswith("linnet:")]
    return results, errors


def test_ranks_that_cannot_train_together_are_told_so_in_one_line(refused: tuple[list[Any], list[str]]) -> None:
    results, errors = refused
    host = socket.gethostname()
    for number, (_, code, words) in enumerate(WRONG.values()):
        assert results[number] == code, errors
        assert words.replace("HOST", host) in errors[number]
    assert results[-2:] == [1, "errored"]  # another version; a rank that computed wrongly
    assert len(errors) == len(WRONG) + 1
    assert f"rank 1 on {host} has another version of Linnet than rank 0" in errors[-1]
