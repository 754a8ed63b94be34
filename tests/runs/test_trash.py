"""What was deleted can be taken back, whole, for a day."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import linnet
from linnet.runs import RunError, RunStore
from linnet.runs.trash import KEPT_SECONDS, Trash


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    for name in ("a", "b"):
        with linnet.start(tmp_path / "runs", run_id=name, system_every=0) as run:
            run.log(1, loss=1.0)
            (run.weights_dir / "step_1.gguf").write_bytes(b"weights")
    return RunStore(tmp_path / "runs")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_deleted_run_is_gone_from_every_list_and_comes_back_as_it_was(store: RunStore) -> None:
    before = content(store.root)
    assert store.delete("a") == store.root / "a"
    assert [summary.run_id for summary in store.list()] == ["b"]
    with pytest.raises(RunError, match="no run 'a'"):
        store.find("a")
    (deletion,) = Trash(store.root).deletions()
    assert (deletion.run_id, deletion.paths) == ("a", ["a"])
    assert deletion.bytes > 0
    assert Trash(store.root).restore(deletion) == [store.root / "a"]
    assert content(store.root) == before
    assert not (store.root / ".trash").exists() or not any((store.root / ".trash").iterdir())


def test_for_good_frees_the_disk_at_once(store: RunStore) -> None:
    store.delete("a", for_good=True)
    assert [path.name for path in store.root.iterdir()] == ["b"]


def test_after_a_day_it_is_removed_for_good(store: RunStore) -> None:
    now = time.time()
    store.delete("a", at=now - KEPT_SECONDS - 1)
    store.delete("b", at=now - KEPT_SECONDS + 60)
    trash = Trash(store.root)
    assert [deletion.run_id for deletion in trash.empty()] == ["a"]
    assert [deletion.run_id for deletion in trash.deletions()] == ["b"]


def test_a_clock_that_ran_ahead_removes_nothing(store: RunStore) -> None:
    store.delete("a", at=time.time() + 1e6)
    assert Trash(store.root).empty() == []
    assert [deletion.run_id for deletion in Trash(store.root).deletions()] == ["a"]


def test_what_is_there_again_is_never_overwritten(store: RunStore) -> None:
    store.delete("a")
    with linnet.start(store.root, run_id="a", system_every=0) as run:
        run.log(1, loss=2.0)
    before = content(store.root / "a")
    trash = Trash(store.root)
    with pytest.raises(RunError, match="is there again"):
        trash.restore(trash.deletions()[0])
    assert content(store.root / "a") == before
    assert len(trash.deletions()) == 1


def test_damaged_and_foreign_entries_are_passed_over(store: RunStore, tmp_path: Path) -> None:
    store.delete("a")
    folder = store.root / ".trash"
    (folder / "x").mkdir()
    (folder / "x" / "entry.json").write_bytes(b"\xff{")
    (folder / "y").mkdir()
    (folder / "z").write_text("no folder")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "entry.json").write_bytes(next(folder.glob("2*/entry.json")).read_bytes())
    (folder / "link").symlink_to(elsewhere)
    trash = Trash(store.root)
    assert [deletion.run_id for deletion in trash.deletions()] == ["a"]
    trash.empty(older=-1.0)
    assert (elsewhere / "entry.json").exists()


def test_an_entry_that_names_a_path_outside_is_refused(store: RunStore, tmp_path: Path) -> None:
    store.delete("a")
    entry = next((store.root / ".trash").glob("*/entry.json"))
    entry.write_text(entry.read_text().replace('"a"\n', '"../../out"\n'))
    trash = Trash(store.root)
    (deletion,) = trash.deletions()
    assert deletion.paths == ["../../out"]
    with pytest.raises(RunError, match="leads out of"):
        trash.restore(deletion)
    assert not (tmp_path.parent / "out").exists()


def test_a_trash_that_is_a_link_is_not_followed(store: RunStore, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (store.root / ".trash").symlink_to(elsewhere)
    with pytest.raises(RunError, match="is a link"):
        store.delete("a")
    assert (store.root / "a" / "run.json").exists()
    assert not any(elsewhere.iterdir())


def test_a_move_that_fails_half_way_puts_everything_back(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    run = store.find("a")
    files = [run.path / "weights" / "step_1.gguf", run.path / "run.json"]
    before, real = content(store.root), Path.rename

    def rename(self: Path, target: Path) -> Path:
        if self.name == "run.json" and ".trash" in str(target):
            raise OSError(28, "No space left on device")
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(RunError, match=r"run\.json cannot go to .*No space left"):
        store.discard(run, files, 1)
    assert content(store.root) == before


def test_a_run_elsewhere_goes_to_the_trash_beside_it(store: RunStore, tmp_path: Path) -> None:
    with linnet.start(tmp_path / "other", run_id="c", system_every=0) as run:
        run.log(1, loss=1.0)
    store.delete(str(tmp_path / "other" / "c"))
    assert [deletion.run_id for deletion in Trash(tmp_path / "other").deletions()] == ["c"]
    assert Trash(store.root).deletions() == []
