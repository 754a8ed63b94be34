"""The peers: each in a virtual environment of its own under `.peers/`, at the version that was studied."""

import subprocess
import sys
from pathlib import Path

VERSIONS = {"trackio": "0.43.0", "tensorboard": "2.21.0", "wandb": "0.31.0", "aim": "3.29.1"}

_HOME = Path(__file__).parent / ".peers"


class PeerMissingError(Exception):
    """A peer could not be installed, so nothing can be compared with it."""


def python_of(name: str) -> Path:
    """The interpreter that has the peer, after installing it if this is the first time."""
    home = _HOME / name
    python = home / "bin" / "python"
    marker = home / f".{name}-{VERSIONS[name]}"
    if marker.exists():
        return python
    print(f"installing {name} {VERSIONS[name]} into bench/.peers/{name}", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    done = subprocess.run([*pip, f"{name}=={VERSIONS[name]}"], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip() or "pip gave no reason").splitlines()[-1]
        raise PeerMissingError(f"{name} {VERSIONS[name]} could not be installed: {reason}")
    marker.touch()
    return python
