"""Finding, filtering and deleting runs; and how each of them stands."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import linnet
from linnet.runs import Run, RunError, RunStore, provenance, summary
from linnet.runs.folder import claim_folder


@pytest.fixture
def store(root: Path) -> RunStore:
    for index, (experiment, tag) in enumerate([("a", "x"), ("a", "y"), ("b", "x")], start=1):
        with linnet.start(
            run_id=f"run-{index}", experiment=experiment, tags=[tag], recipe="own", system_every=0
        ) as run:
            run.log(index, loss=1 / index)
    return RunStore()


def test_list_gives_status_and_last_loss_oldest_first(store: RunStore) -> None:
    listed = store.list()
    assert [g.run_id for g in listed] == ["run-1", "run-2", "run-3"]
    assert [(g.step, g.value, g.status) for g in listed] == [
        (1, 1.0, "completed"),
        (2, 0.5, "completed"),
        (3, 1 / 3, "completed"),
    ]
    assert linnet.list_runs()[0].run_id == "run-1"


def test_filters_combine(store: RunStore) -> None:
    assert [g.run_id for g in store.list(experiment="a")] == ["run-1", "run-2"]
    assert [g.run_id for g in store.list(experiment="a", tag="x")] == ["run-1"]
    assert [g.run_id for g in store.list(status="crashed")] == []
    assert len(store.list(recipe="own")) == 3
    with pytest.raises(linnet.LinnetError, match="status 'dead' does not exist; choose from live"):
        store.list(status="dead")


def test_find_takes_id_prefix_path_and_latest(store: RunStore, root: Path) -> None:
    assert store.find("run-2").id == "run-2"
    assert store.find("latest").id == "run-3"
    assert store.find(str(root / "run-1")).id == "run-1"
    assert Run.latest().id == "run-3"  # type: ignore[union-attr]
    with linnet.start(run_id="other", system_every=0):
        pass
    assert store.find("oth").id == "other"


def test_find_says_what_it_found_instead(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="'run-' could be any of 3 runs: run-1, run-2, run-3"):
        store.find("run-")
    with pytest.raises(RunError, match=r"no run 'rum-1' in the folder .*; did you mean run-1\?"):
        store.find("rum-1")
    with pytest.raises(RunError, match="there are no runs in the folder"):
        RunStore(tmp_path / "nothing").find("latest")
    with pytest.raises(RunError, match="is not a run: no such folder"):
        Run.load(tmp_path / "nothing")
    assert Run.latest(tmp_path / "nothing") is None


def test_delete_takes_the_whole_folder_and_refuses_a_live_one(store: RunStore, root: Path) -> None:
    store.delete("run-1")
    assert not (root / "run-1").exists()
    with linnet.start(run_id="busy", system_every=0) as run:
        run.log(1, loss=1.0)
        with pytest.raises(RunError, match="run busy is being written"):
            store.delete("busy")
        store.delete("busy", force=True)


def test_find_knows_the_ids_that_are_listed(store: RunStore, root: Path) -> None:
    (root / "run-1").rename(root / "moved")
    assert [store.find(g.run_id).path for g in store.list()] == [root / "moved", root / "run-2", root / "run-3"]
    assert store.find("moved").id == "run-1"


def test_two_runs_of_one_name_are_told_apart_by_path(tmp_path: Path) -> None:
    for experiment in ("a", "b"):
        folder = tmp_path / "experiments" / experiment / "runs/same"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"id": "same", "started_at": 1.0}))
    store = RunStore(tmp_path)
    for act in (store.find, store.delete):
        with pytest.raises(RunError, match=r"'same' could be any of 2 runs: .*experiments/a/runs/same, .*b/runs/same"):
            act("same")
    assert store.find("experiments/b/runs/same").path == tmp_path / "experiments/b/runs/same"


def test_an_empty_name_is_no_run(root: Path) -> None:
    with linnet.start(run_id="only", system_every=0):
        pass
    for name in ("", " "):
        with pytest.raises(RunError, match="the name of the run is empty"):
            RunStore().delete(name)


def test_a_mistyped_name_is_compared_without_date_and_number(root: Path) -> None:
    with linnet.start(run_id="softmax-20260531-001", system_every=0):
        pass
    with pytest.raises(RunError, match=r"did you mean softmax-20260531-001\?"):
        RunStore().find("softmx")
    with pytest.raises(RunError, match=r"\(1 run there\)"):
        RunStore().find("zzz")


def test_a_loop_of_links_hides_no_run(store: RunStore, root: Path) -> None:
    (root / "loop").symlink_to(root / "loop")
    assert len(store.list()) == 3


def test_a_folder_that_may_not_be_read_is_passed_over(store: RunStore, root: Path) -> None:
    (root / "run-2").chmod(0)
    root.parent.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(root / "run-2", 1, 1)
        os.seteuid(65534)  # root may read everything
    try:
        assert {g.run_id for g in store.list()} <= {"run-1", "run-3"}
        with pytest.raises(RunError):
            store.find("x" * 5000)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        (root / "run-2").chmod(0o755)


def test_delete_refuses_a_run_whose_writer_is_silent_but_alive(root: Path) -> None:
    with linnet.start(run_id="busy", system_every=0) as run:
        run.log(1, loss=1.0)
        silent = summary.summarize(run.run_dir, now=time.time() + 1000)
        assert silent is not None
        assert silent.status == "stalled"
        with pytest.raises(RunError, match="run busy is being written"):
            RunStore().delete("busy")


def test_checkpoints_are_those_with_a_step_in_order(root: Path) -> None:
    run = Run.create(root)
    (run.path / "weights").mkdir()
    for name in ("step_10.gguf", "step_9.gguf", "step_final.gguf", "step_².gguf", "step_.gguf"):
        (run.path / "weights" / name).touch()
    assert [file.name for file in run.checkpoints()] == ["step_9.gguf", "step_10.gguf"]


def test_create_claims_a_folder_with_a_manifest(root: Path) -> None:
    first = Run.create(arch="mlp", experiment="e", config={"lr": 1})
    second = Run.create(arch="mlp")
    assert first.id.startswith("mlp-")
    assert first.id.endswith("-001")
    assert second.id.endswith("-002")
    assert Run.load(first.path).manifest.config == {"lr": 1}
    (root / "file").write_text("")
    with pytest.raises(RunError, match="cannot make a run in"):
        Run.create(root / "file")


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("{arch}-{date}-{seq}", r"llama-\d{8}-001"),
        ("{recipe}_{time}", r"own_\d{6}"),
        ("{experiment}-{hex}", r"e-1-[0-9a-f]{4}"),
        ("{seq}-{date}", r"001-\d{8}"),
        ("../{arch}/x", "llama-x"),
    ],
)
def test_templates_fill_in_and_stay_inside_the_root(root: Path, template: str, wanted: str) -> None:
    labels = {"arch": "llama", "recipe": "own", "experiment": "e/1"}
    folders = [claim_folder(root, template, labels) for _ in range(3)]
    assert re.fullmatch(wanted, folders[0].name)
    assert len(set(folders)) == 3
    assert {folder.parent for folder in folders} == {root}


def test_a_run_is_live_while_its_writer_lives_and_crashed_at_once_when_it_does_not(
    root: Path, script: Callable[..., subprocess.Popen[str]]
) -> None:
    process = script("""
import linnet, time
run = linnet.start(run_id="a", system_every=0)
run.log(1, loss=1.0)
print("up", flush=True)
time.sleep(60)
""")
    assert process.stdout is not None
    process.stdout.readline()
    run = linnet.open("a")
    assert run.status == "live"
    later = run.events_path.stat().st_mtime + 1000
    silent = summary.summarize(run.path, now=later)
    assert silent is not None
    assert silent.status == "stalled"  # it holds the lock and says nothing: stopped, or stuck
    process.kill()
    process.wait()
    assert run.status == "crashed"


def test_status_of_a_run_on_another_machine_goes_by_its_last_word(root: Path) -> None:
    run = Run.create(root)
    run.events_path.write_text('{"kind":"step","t":1,"step":1,"loss":1}\n')
    manifest = json.loads((run.path / "run.json").read_text())
    away = {"host": "elsewhere", "boot_id": "another", "lock": "flock"}
    (run.path / "run.json").write_text(json.dumps({**manifest, "provenance": away}))
    assert run.status == "live"
    later = summary.summarize(run.path, now=run.events_path.stat().st_mtime + 1000)
    assert later is not None
    assert later.status == "stalled"


def test_a_run_from_before_this_machine_started_again_has_crashed(root: Path) -> None:
    run = Run.create(root)
    run.events_path.write_text('{"kind":"step","t":1,"step":1,"loss":1}\n')
    manifest = json.loads((run.path / "run.json").read_text())
    before = {"host": provenance.host()["name"], "boot_id": "before", "lock": "flock"}
    (run.path / "run.json").write_text(json.dumps({**manifest, "provenance": before}))
    assert run.status == "crashed"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"run_id": 5, "tags": 7, "config": []}', "\x00", "9" * 500])
def test_a_damaged_manifest_does_not_hide_the_run(root: Path, content: str) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(1, loss=0.5)
    (run.run_dir / "run.json").write_text(content)
    opened = linnet.open("a")
    assert opened.metrics()["loss"].value.tolist() == [0.5]
    assert opened.status == "completed"


def test_a_long_tail_of_other_events_does_not_hide_the_last_loss(root: Path) -> None:
    with linnet.start(run_id="a", system_every=0) as run:
        run.log(7, loss=0.25)
        for _ in range(300):
            run.sample(7, "once", "upon " * 100)
    assert RunStore().list()[0].value == 0.25
    assert RunStore().list()[0].step == 7


def test_import_is_light() -> None:
    program = (
        "import sys, linnet; linnet.start; "
        "heavy = {'torch', 'numpy', 'rich', 'cyclopts', 'psutil', 'starlette', 'textual'} & set(sys.modules); "
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_run_is_found_by_its_name_where_no_id_is_meant(root: Path) -> None:
    for run_id, name in (("a-1", "wide"), ("a-2", "twice"), ("a-3", "twice"), ("wide-b", "narrow"), ("c", "a-1")):
        with linnet.start(run_id=run_id, name=name, system_every=0):
            pass
    store = RunStore()
    assert store.find("narrow").id == "wide-b"
    assert store.find("wide").id == "a-1"  # a whole name goes before the beginning of an id
    assert store.find("wide-").id == "wide-b"
    assert store.find("a-1").id == "a-1"  # and an id before a name
    with pytest.raises(RunError, match="'twice' could be any of 2 runs: a-2, a-3"):
        store.find("twice")
    with pytest.raises(RunError, match=r"no run 'narow' in the folder .*; did you mean narrow\?"):
        store.find("narow")
