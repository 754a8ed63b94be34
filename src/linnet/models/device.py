"""Which device to work on."""

from __future__ import annotations

import torch

from linnet.errors import UsageError

DEVICES = ("auto", "cpu", "cuda", "mps")


def pick_device(name: str = "auto") -> torch.device:
    """A device by its word: `auto` (the fastest there is), `cpu`, `cuda`, `cuda:1`, `mps`; an absent one is refused."""
    kind, _, number = name.partition(":")
    if kind not in DEVICES or (number and not (kind == "cuda" and number.isdigit())):
        raise UsageError(f"there is no device {name!r}; choose from {', '.join(DEVICES)}, or cuda:N")
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if kind == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    if kind == "cuda" and not cuda:
        built = "sees no GPU" if torch.version.cuda else "was built without CUDA"
        raise UsageError(f"device cuda was asked for, but torch {torch.__version__} {built}; use `device=cpu`")
    if number and int(number) >= torch.cuda.device_count():
        raise UsageError(f"device {name} was asked for, but there are {torch.cuda.device_count()} GPUs, counted from 0")
    if kind == "mps" and not mps:
        raise UsageError("device mps was asked for, but this machine has no Metal; use `device=cpu`")
    device = torch.device(name)
    if number:
        torch.cuda.set_device(device)  # streams, events and kernels belong to the current one unless told otherwise
    return device
