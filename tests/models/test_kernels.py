"""The kernels for CUDA, on a machine that has none."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton has no wheel for this machine")
def test_interpreted_kernels_compute_what_their_plain_versions_do() -> None:
    command = [sys.executable, "-m", "pytest", "-q", str(Path(__file__).with_name("interpreted_kernels.py"))]
    done = subprocess.run(command, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-4000:]
