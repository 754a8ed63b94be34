"""Threads give their core away while they wait, where others use the machine."""

from __future__ import annotations

import os
import sys

import pytest

from linnet.train.process import wait_asleep_where_shared, waits_asleep


@pytest.mark.parametrize(
    ("load", "policy", "asleep"), [(0.0, None, False), (99.0, None, True), (99.0, "ACTIVE", False)]
)
def test_they_do_beside_other_work_unless_told_otherwise(
    load: float, policy: str | None, asleep: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", policy or "")
    if policy is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, load, load), raising=False)
    wait_asleep_where_shared()
    assert waits_asleep() == asleep


def test_once_torch_is_there_it_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.setitem(sys.modules, "torch", sys)
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 99.0, 99.0), raising=False)
    wait_asleep_where_shared()
    assert not waits_asleep()
