"""What the server tells of the inside of a training is what `linnet metrics --inspect` tells."""

from __future__ import annotations

import json
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import linnet
from linnet.board.web.answers import RequestError
from linnet.board.web.attention import AttentionMaps
from linnet.board.web.board import WebBoard
from linnet.board.web.inside_answer_types import AttentionMap, AttentionQuestion
from linnet.runs import RunBundle
from linnet.runs.run import add_evaluation, add_image, add_note, add_numbers
from tests.board.conftest import ABOUT, append, training, write
from tests.board.web.conftest import WRITE, board_of, client_of
from tests.conftest import Said

MODEL = {"arch": "llama", "n_layers": 2}
STEPS = (1, 5, 10)


def write_look(run: RunBundle, step: int) -> None:
    shape: dict[str, Any] = {"shape": [8, 4], "dtype": "f32"}
    for layer in (0, 1):
        spread = {"edges": [-1.0 * step, 3.0 * step], "histogram": [step] * 32}
        run.tap(step, "attn_q", layer, None, **shape, std=0.5, per_head_l2=[1.0 + layer, 2.0])
        run.tap(step, "ffn_out", layer, None, **shape, std=step + layer, **spread)
        gram = [[float(1 + (row == column) * (step + layer + row)) for column in range(6)] for row in range(6)]
        run.tap(step, "ffn_out", layer, None, shape=[6, 6], gram=gram)
        run.grad(step, f"blk.{layer}.attn_q.weight", shape=[8, 8], l2=float("nan") if step == 5 else 0.1 * step)
    run.drift(step, "token_embd.weight", 0.9, 1.5)
    run.drift(step, "token_embd.weight", 0.8, 0.25, token_id=7, freq=100 * step)
    for name, begin, end in (("step", 0.0, 100.0), ("forward", 10.0, 40.0)):
        run.region_enter(step, name, begin)
        if name == "forward":
            run.region_exit(step, name, end)
    run.region_exit(step, "step", 100.0)


@pytest.fixture
def seen(root: Path) -> Path:
    """A run that was looked into at three steps."""
    with linnet.start(root, run_id="seen", system_every=0, model=MODEL) as run:
        for step in range(1, 11):
            run.log(step, loss=1 / step)
            if step in STEPS:
                write_look(run, step)
    return root / "seen"


def asked(client: TestClient, part: str = "", **parameters: Any) -> Any:
    answer = client.get(f"/api/runs/seen/inside{part}", params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_it_says_what_was_looked_at(client: TestClient, seen: Path) -> None:
    told = asked(client)
    assert told["looks"]["taps"] == {"count": 3, "first": 1, "last": 10}
    assert set(told["looks"]) == {"taps", "grads", "drift", "gram", "tokens", "regions"}
    assert told["tables"]["taps"] == [
        {"name": "attn_q", "layers": [0, 1], "figures": ["std"], "head_figures": ["l2"], "histogram": False},
        {"name": "ffn_out", "layers": [0, 1], "figures": ["std"], "head_figures": [], "histogram": True},
    ]
    assert told["grams"] == [{"name": "ffn_out", "layers": [0, 1]}]
    assert client.get("/api/runs/seen").json()["has"]["inside"] is True


def test_a_map_has_the_numbers_of_the_command(client: TestClient, seen: Path, said: Said, root: Path) -> None:
    told = asked(client, "/map", table="taps", figure="std", name="ffn_out")
    assert told["values"] == [[1, 5, 10], [2, 6, 11]] and told["low"] is None
    assert [row["label"] for row in told["rows"]] == ["0", "1"] and told["begins"] == list(STEPS)
    _, out, _ = said("metrics", "seen", "--inspect", "taps", "--runs", str(root), "--json")
    by_command = {(row["step"], row["layer"]): row["std"] for row in json.loads(out) if row["name"] == "ffn_out"}
    by_map = {
        (step, row["layer"]): value
        for row, values in zip(told["rows"], told["values"], strict=True)
        for step, value in zip(told["begins"], values, strict=True)
    }
    assert by_map == by_command


def test_a_map_may_be_of_heads_of_a_layer_or_of_everything(client: TestClient, seen: Path) -> None:
    heads = asked(client, "/map", table="taps", figure="l2", name="attn_q", layer=1, heads=1)
    assert heads["values"] == [[2, 2, 2], [2, 2, 2]] and [row["head"] for row in heads["rows"]] == [0, 1]
    everything = asked(client, "/map", table="taps", figure="std")
    assert [row["label"] for row in everything["rows"]] == ["attn_q.0", "ffn_out.0", "attn_q.1", "ffn_out.1"]
    gradients = asked(client, "/map", table="grads", figure="l2")
    assert gradients["values"][0] == pytest.approx([0.1, "nan", 1.0]), "NaN is a text: JSON has no number for it"


def test_of_many_looks_a_column_has_its_range(client: TestClient, seen: Path) -> None:
    told = asked(client, "/map", table="taps", figure="std", name="ffn_out", columns=2)
    assert told["looks"] == 3 and told["begins"] == [1, 5] and told["ends"] == [1, 10]
    assert told["low"] == [[1, 5], [2, 6]] and told["high"] == [[1, 10], [2, 11]]
    assert told["values"] == [[1, 10], [2, 11]], "what lies farthest from the row's median"


def test_histograms_over_the_steps_and_at_one(client: TestClient, seen: Path) -> None:
    ridge = asked(client, "/histograms", name="ffn_out", layer=1)
    assert [one["step"] for one in ridge["histograms"]] == list(STEPS)
    assert (ridge["histograms"][2]["low"], ridge["histograms"][2]["high"]) == (-10, 30)
    assert asked(client, "/histograms", name="ffn_out", layer=1, step=5)["histograms"] == [
        {"step": 5, "low": -5, "high": 15, "counts": [5] * 32}
    ]
    fewer = asked(client, "/histograms", name="ffn_out", layer=1, rows=2)
    assert [one["step"] for one in fewer["histograms"]] == [5, 10] and fewer["looks"] == 3, "the widest, and the last"


def test_times_are_a_tree_and_tokens_a_cloud(client: TestClient, seen: Path) -> None:
    told = asked(client, "/regions", step=5)
    assert told["steps"] == list(STEPS) and told["step"] == 5
    root = told["root"]
    assert (root["name"], root["us"], root["own_us"]) == ("step", 100, 70)
    assert [(child["name"], child["begin_us"], child["us"]) for child in root["children"]] == [("forward", 10, 30)]
    tokens = asked(client, "/tokens")
    assert (tokens["step"], tokens["token_id"], tokens["freq"], tokens["cos_to_init"]) == (10, [7], [1000], [0.8])


def test_layers_are_compared_at_a_step_and_a_layer_with_itself(client: TestClient, seen: Path) -> None:
    layers = asked(client, "/similarity", name="ffn_out")
    assert layers["step"] == 10 and layers["labels"] == ["0", "1"] and layers["samples"] == 6
    assert layers["values"][0][0] == pytest.approx(1.0) and layers["values"][0][1] == layers["values"][1][0]
    steps = asked(client, "/similarity", name="ffn_out", layer=0)
    assert steps["labels"] == ["1", "5", "10"] and len(steps["values"]) == 3


def test_layers_that_saw_other_samples_are_not_compared(client: TestClient, root: Path) -> None:
    with linnet.start(root, run_id="seen", system_every=0, model=MODEL) as run:
        for layer, size in ((0, 5), (1, 6)):
            gram = [[float(row == at) for at in range(size)] for row in range(size)]
            run.tap(1, "ffn_out", layer, None, shape=[size, size], dtype="f32", gram=gram)
    answer = client.get("/api/runs/seen/inside/similarity", params={"name": "ffn_out"})
    assert answer.status_code == 404 and "of other samples" in answer.text


def test_what_was_not_told_is_refused_with_what_was_meant(client: TestClient, seen: Path) -> None:
    def refused(part: str, **parameters: Any) -> str:
        answer = client.get(f"/api/runs/seen/inside/{part}", params=parameters)
        assert answer.status_code == 404
        return str(answer.json()["error"])

    assert "did you mean std?" in refused("map", table="taps", figure="sdt", name="ffn_out")
    assert "did you mean ffn_out?" in refused("map", table="taps", figure="std", name="ffn_ou")
    assert "no regions were told of step 3; there are 1, 5, 10" in refused("regions", step=3)
    assert "no histogram of ffn_out.7" in refused("histograms", name="ffn_out", layer=7)


def test_nothing_is_read_before_somebody_asks(seen: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linnet.runs.run.Run.inspection", lambda run: pytest.fail("it was read"))
    with client_of(root) as client:
        for part in ("", "/log", "/flow", "/artifacts", "/profile", "/samples"):
            assert client.get(f"/api/runs/seen{part}").status_code in (200, 404)
        assert client.get("/api/series?runs=seen&keys=loss").status_code == 200


def test_a_live_run_is_followed(client: TestClient, root: Path) -> None:
    with linnet.start(root, run_id="seen", system_every=0, model=MODEL) as run:
        run.log(1, loss=1.0)
        assert client.get("/api/runs/seen").json()["has"]["inside"] is False
        write_look(run, 1)
        assert asked(client)["looks"]["taps"]["count"] == 1
        write_look(run, 2)
        assert asked(client, "/map", table="taps", figure="std", name="ffn_out")["begins"] == [1, 2]
        assert client.get("/api/runs/seen").json()["has"]["inside"] is True


def test_a_plain_run_has_nothing_inside(client: TestClient, root: Path) -> None:
    write(root / "seen", training(), **ABOUT)
    assert client.get("/api/runs/seen").json()["has"]["inside"] is False
    assert asked(client) == {"looks": {}, "tables": {}, "grams": []}
    assert asked(client, "/results") == []


def test_what_analysis_commands_kept_is_told_with_its_numbers(client: TestClient, seen: Path, root: Path) -> None:
    run = linnet.open("seen", root)
    add_numbers(run, "cka", 10, {"rows": ["0"], "columns": ["0"], "cka": [[1.0]]})
    add_image(run, "cka", 10, b"\x89PNG one", (4, 4), "cka of seen")
    add_image(run, "drift", 10, b"\x89PNG two", (4, 4), "kept before numbers were")
    for alpha, loss in ((0.0, 2.0), (0.5, 3.5), (1.0, 3.0), (0.0, 2.0), (1.0, 2.0)):
        add_evaluation(run, "lmc", 10, {"loss": loss, "extra": {"alpha": alpha}})
    add_note(run, "cka of seen", 10)
    by_kind = {one["kind"]: one for one in asked(client, "/results")}
    assert by_kind["cka"]["numbers"]["cka"] == [[1.0]] and by_kind["cka"]["text"] == "cka of seen"
    content = client.get(f"/api/runs/seen/artifacts/{by_kind['cka']['picture']}")
    assert content.content == b"\x89PNG one"
    assert by_kind["drift"]["numbers"] is None and by_kind["drift"]["picture"] is not None
    lines = [one["numbers"] for one in asked(client, "/results") if one["kind"] == "lmc"]
    assert [line["alphas"] for line in lines] == [[0, 0.5, 1], [0, 1]]
    assert lines[0]["barrier"] == pytest.approx(1.0), "above the line between the ends"


def test_damaged_numbers_leave_the_picture(client: TestClient, seen: Path, root: Path) -> None:
    run = linnet.open("seen", root)
    file = add_numbers(run, "cka", 10, {"cka": [[1.0]]})
    add_image(run, "cka", 10, b"\x89PNG", (4, 4), "")
    file.write_bytes(b"[1, 2")
    (kept,) = asked(client, "/results")
    assert kept["numbers"] is None and kept["picture"] is not None
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert asked(client, "/results")[0]["numbers"] is None


COMMAND = """
import json, sys
words = sys.argv[1:]
assert words[0] == "attention" and words[1].endswith("step_20.gguf") and words[3:] == ["--device", "cpu", "--json"]
prompt = words[2].removeprefix("--prompt=")
if prompt == "bad":
    print("linnet: the prompt is bad", file=sys.stderr)
    sys.exit(2)
print(json.dumps({"model": "m", "prompt": prompt, "tokens": list(prompt), "layers": [
    {"layer": layer, "head_numbers": [0], "heads": [[[1.0, 0.0], [0.25, 0.75 + layer]]]} for layer in (0, 1)]}))
with open(words[1] + ".asked", "a") as file:
    file.write(prompt)
"""


def test_attention_is_computed_by_a_process_of_its_own_and_once(seen: Path, root: Path) -> None:
    (seen / "weights").mkdir(exist_ok=True)
    for step in (10, 20):
        (seen / f"weights/step_{step}.gguf").write_bytes(b"GGUF")
    maps, board = AttentionMaps((sys.executable, "-c", COMMAND)), board_of(root)
    first = maps.answer(board, "seen", AttentionQuestion("-a"))
    assert (first.step, first.tokens, first.layers) == (20, ["-", "a"], [0, 1])
    assert first.heads == [[[1.0, 0.0], [0.25, 0.75]]]
    assert maps.answer(board, "seen", AttentionQuestion("-a", 20, 1)).heads == [[[1.0, 0.0], [0.25, 1.75]]]
    assert (seen / "weights/step_20.gguf.asked").read_text() == "-a", "the other layer was there"
    with pytest.raises(RequestError, match="the prompt is bad"):
        maps.answer(board, "seen", AttentionQuestion("bad"))
    with pytest.raises(RequestError, match="there is no layer 2; there are 2, from 0"):
        maps.answer(board, "seen", AttentionQuestion("-a", 20, 2))
    with pytest.raises(RequestError, match="no checkpoint of step 30"):
        maps.answer(board, "seen", AttentionQuestion("a", 30))
    board.close()


def test_whoever_waits_for_attention_leaves_room_for_others(
    client: TestClient, seen: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting, released = threading.Semaphore(0), threading.Event()

    def answer(maps: AttentionMaps, board: WebBoard, run_id: str, question: AttentionQuestion) -> AttentionMap:
        waiting.release()
        assert released.wait(30)
        return AttentionMap(1, ["a"], [0], 0, [[[1.0]]])

    monkeypatch.setattr(AttentionMaps, "answer", answer)
    with ThreadPoolExecutor(4) as threads:
        ask = {"url": "/api/runs/seen/attention", "headers": WRITE, "json": {"prompt": "a"}}
        asked = [threads.submit(client.post, **ask) for _ in range(4)]
        assert all(waiting.acquire(timeout=30) for _ in asked)
        refused = client.post(**ask)
        assert refused.status_code == 503 and "ask again" in refused.json()["error"]
        assert client.get("/api/runs/seen").status_code == 200
        released.set()
        assert [one.result().status_code for one in asked] == [200] * 4
    assert client.post(**ask).status_code == 200


def test_attention_needs_a_model_and_a_text(client: TestClient, seen: Path) -> None:
    def refused(body: dict[str, Any]) -> tuple[int, str]:
        answer = client.post("/api/runs/seen/attention", headers=WRITE, json=body)
        return answer.status_code, answer.json()["error"]

    assert refused({"prompt": "the"}) == (409, "the run has no checkpoint of a language model yet")
    assert refused({"prompt": ""})[0] == refused({"prompt": "a" * 2_001})[0] == refused({})[0] == 400
    assert client.post("/api/runs/seen/attention", json={"prompt": "the"}).status_code == 403


def test_a_stream_of_another_writer_counts_as_looked_into(client: TestClient, root: Path) -> None:
    tap = {"kind": "tap", "t": 1.0, "step": 1, "region": "ffn_out", "layer": 0, "std": 1.5}
    append(write(root / "seen", training(), **ABOUT), [tap])
    assert asked(client, "/map", table="taps", figure="std")["values"] == [[1.5]]
    assert client.get("/api/runs/seen").json()["has"]["inside"] is True
