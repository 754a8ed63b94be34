"""`linnet compare`."""

from __future__ import annotations

from linnet.board import words
from linnet.board.settings import ABSENT
from linnet.board.settings import differing as differing_of
from linnet.board.settings import settings as settings_of
from linnet.board.words import listing
from linnet.cli.options import AsJson, RunName, RunsFolder, require_metrics
from linnet.cli.show import series_summary
from linnet.cli.terminal import paint, print_json, table
from linnet.errors import UsageError
from linnet.runs import Metrics, Run, RunStore
from linnet.runs.metric_names import Goal


def compare(
    *run: RunName,
    key: list[str] | None = None,
    runs: RunsFolder = None,
    json: AsJson = False,
) -> int:
    """Compare runs: what was set differently, and what came of it.

    Parameters
    ----------
    key
        Only these metrics.
    """
    if len(run) < 2:
        raise UsageError(f"compare needs two runs or more, found {len(run)}; `{listing(runs)}` lists them")
    store = RunStore(runs)
    found = [store.find(reference) for reference in run]
    metrics = [each.metrics() for each in found]
    settings = [settings_of(each.manifest) for each in found]
    differing = differing_of(settings)
    known = list(dict.fromkeys(name for each in metrics for name in each.names()))
    require_metrics(key or (), known, "these runs have")
    names = [name for name in known if _wanted(name, key)]
    if json:
        print_json(
            [
                {
                    "run_id": each.id,
                    "path": str(each.path),
                    "status": each.status,
                    "differs": {name: setting.get(name) for name in differing},
                    "metrics": {
                        name: series_summary(m[name], _common_goal(name, metrics)) for name in names if name in m
                    },
                }
                for each, setting, m in zip(found, settings, metrics, strict=True)
            ]
        )
        return 0
    _print(found, settings, differing, metrics, names)
    return 0


def _print(
    found: list[Run], settings: list[dict[str, object]], differing: list[str], metrics: list[Metrics], names: list[str]
) -> None:
    ids = [each.id for each in found]
    rows = [("status", *(each.status for each in found))]
    rows += [(name, *(str(setting.get(name, ABSENT)) for setting in settings)) for name in differing]
    print("\n".join(table(("setting", *ids), rows)))
    if not differing:
        print(paint("the settings are the same", "dim"))
    if names:
        print()
        body = [(name, *_best_cells(name, metrics)) for name in names]
        right = tuple(range(1, len(ids) + 1))
        print("\n".join(table(("best (last)", *ids), body, right=right)))
        conflicting = [name for name in names if len(_goals(name, metrics)) > 1]
        if conflicting:
            shown = words.plain(", ".join(conflicting))
            print(paint(f"no best of {shown}: its goal is min in one run and max in another", "yellow"))


def _common_goal(name: str, metrics: list[Metrics]) -> Goal | None:
    """Which way is better, as the runs agree on it; one that says nothing agrees with all. None: no run says, or two
    contradict each other."""
    goals = _goals(name, metrics)
    return goals.pop() if len(goals) == 1 else None


def _goals(name: str, metrics: list[Metrics]) -> set[Goal]:
    return {goal for m in metrics if name in m and (goal := m[name].goal) is not None}


def _best_cells(name: str, metrics: list[Metrics]) -> list[str]:
    """Best and last value in each run, the best of all marked; no best where no way is known to be better."""
    goal = _common_goal(name, metrics)
    series = [m.get(name) for m in metrics]
    best = [None if s is None or goal is None or (b := s.best_by(goal)) is None else b[1] for s in series]
    known = [value for value in best if value is not None]
    top = (min(known) if goal == "min" else max(known)) if known else None
    cells = []
    for each, value in zip(series, best, strict=True):
        if each is None:
            cells.append(ABSENT)
            continue
        mark = "*" if value is not None and value == top and len(known) > 1 else " "
        last = words.number(each.latest[1] if each.latest else None)
        cells.append(f"{words.number(value)}{mark} ({last})")
    return cells


def _wanted(name: str, key: list[str] | None) -> bool:
    return name in key if key else not name.startswith("sys/")
