"""`RegionTimer`: where the time of one step goes, by the parts of the model, nested as they are.

Moments are the device's own: on a GPU events in its stream, which cost nobody a wait. What runs eagerly is timed by
hooks on the modules; a compiled layer is one region. A backward pass has no modules: its regions end where the gradient
of what a layer reads has come.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from linnet.kernels import Executor
from linnet.train.device_clock import Moment, moment_on, seconds_between
from linnet.train.inspection.late_events import InspectedEvent

_FIRST_NORMS, _SECOND_NORMS, _LAST_NORMS = ("attn_norm", "ln1"), ("ffn_norm", "ln2"), ("output_norm", "post_ln")
_ATTENTION_BEGINS, _ATTENTION_ENDS = ("attn_qkv",), ("attn_output", "attn_out")  # after the one, before the other
_LOSSES = ("loss_and_accuracy",)  # functions of models


class RegionTimer:
    """Takes the times of a step; made for one. `step`: its number; `compiled`: no hook may be put into the model."""

    def __init__(self, model: nn.Module, device: torch.device, step: int, *, compiled: bool) -> None:
        self.step, self._compiled = step, compiled
        self._model = model
        self._layers = len(model.blocks)  # type: ignore[arg-type]
        self._device = device
        self._marks: list[tuple[bool, str, Moment]] = []  # entered, the region's path, when
        self._open: list[str] = []
        self._thread = 0  # of the pass that is timed
        self._phase = ""
        self._base = 0  # regions that are open round those of the phase

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """A stretch of the step. The modules of a forward pass are timed in it, the layers of a backward pass."""
        outer, depth = (self._phase, self._thread, self._base), len(self._open)
        # Modules are given their hooks while nothing runs: another half of the batch may be in them later.
        hooks = [] if self._open or self._compiled else list(self._hooks())
        self._enter(name)
        self._phase, self._thread, self._base = name, threading.get_ident(), len(self._open)
        if name == "backward":
            self._enter("loss")
        try:
            yield
        finally:
            while len(self._open) > depth:
                self._exit()
            for hook in hooks:
                hook.remove()
            self._phase, self._thread, self._base = outer

    def executor(self, inner: Executor) -> Executor:
        """The same for what is compiled, in which no hook is called; eager execution has hooks."""
        return _TimedExecutor(inner, self) if self._compiled else inner

    # -- for whoever waits for the figures --------------------------------------------------------------------------

    def are_here(self) -> bool:
        """Has the device done it all?"""
        last = self._marks[-1][2] if self._marks else 0.0
        return isinstance(last, float) or bool(last.query())  # type: ignore[no-untyped-call]

    def events(self) -> Iterator[InspectedEvent]:
        """`region_enter` and `region_exit`, with microseconds since the step began."""
        if not self._marks:
            return
        first, last = self._marks[0][2], self._marks[-1][2]
        if not isinstance(last, float):
            last.synchronize()
        for entered, path, moment in self._marks:
            kind = "region_enter" if entered else "region_exit"
            yield InspectedEvent(kind, {"region": path, "us": round(seconds_between(first, moment) * 1e6, 1)})

    # -- forwards ---------------------------------------------------------------------------------------------------

    def _hooks(self) -> Iterator[torch.utils.hooks.RemovableHandle]:
        """On the blocks, on the parts of each, and on what stands before and after them."""
        for name, module in self._model.named_modules():
            *path, leaf = name.split(".")
            if not name or name == "blocks" or (path and path[0] != "blocks") or len(path) > 2:
                continue
            yield module.register_forward_pre_hook(self._when_forward(name, leaf, entering=True))
            yield module.register_forward_hook(self._when_forward(name, leaf, entering=False))

    def _when_forward(self, name: str, leaf: str, *, entering: bool) -> Callable[..., None]:
        """What a module's hook does, in the pass that is timed; what is computed again backwards is no part of it."""

        def hook(module: nn.Module, inputs: tuple[Any, ...], _output: Any = None) -> None:
            if self._phase != "forward" or threading.get_ident() != self._thread:
                return
            if not entering:
                self._exit()
                self._after(leaf)
                return
            if leaf in _ATTENTION_ENDS and self._open[-1].endswith("/attention"):
                self._exit()
            self._enter(leaf if len(name.split(".")) == 3 else name)
            if leaf in (*_FIRST_NORMS, *_SECOND_NORMS, *_LAST_NORMS):
                self._tell_backward(name, inputs[0])

        return hook

    def _after(self, leaf: str) -> None:
        """What follows a module and is none: attention itself, the loss."""
        if leaf in _ATTENTION_BEGINS:
            self._enter("attention")
        elif leaf in _LAST_NORMS:
            self._enter("loss")

    # -- backwards --------------------------------------------------------------------------------------------------

    def _tell_backward(self, name: str, read: Tensor) -> None:
        """When the gradient of what a norm reads is there, all that came after it has been passed through."""
        if read.requires_grad:
            _when_gradient_comes(read, partial(self._passed, name))

    def _passed(self, name: str) -> None:
        """The backward pass has come through a norm: what stands before it in the model is next."""
        path, _, leaf = name.rpartition(".")
        if leaf in _LAST_NORMS:
            self._next_backward(f"blocks.{self._layers - 1}", "feed_forward")
        elif leaf in _SECOND_NORMS:
            self._next_backward(path, "attention")
        else:
            self._passed_layer(int(path.rpartition(".")[2]), "feed_forward")

    def _passed_layer(self, number: int, *part: str) -> None:
        """The backward pass has come through a whole layer."""
        if number:
            self._next_backward(f"blocks.{number - 1}", *part)
        else:
            self._next_backward("embedding")

    def _next_backward(self, *names: str) -> None:
        """Close what is open of the backward pass and is no part of this path; open the rest of it."""
        if self._phase != "backward":
            return
        open_names = [path.rpartition("/")[2] for path in self._open[self._base :]]
        same = 0
        while same < min(len(names), len(open_names)) and names[same] == open_names[same]:
            same += 1
        while len(self._open) > self._base + same:
            self._exit()
        for name in names[same:]:
            self._enter(name)

    # -- what is compiled -------------------------------------------------------------------------------------------

    def timed(self, part: Callable[..., Any], run: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Run a part of the model by a compiled executor."""
        name = self._name_of(part)
        layer = self._layer_read_by(name)
        if layer is not None:
            read = next(tensor for tensor in _tensors(arguments) if tensor.is_floating_point())
            if read.requires_grad:
                _when_gradient_comes(read, partial(self._passed_layer, layer))
        self._enter(name)
        result = run(part, *arguments)
        self._exit()
        if name in _LAST_NORMS:
            self._enter("loss")
        return result

    def _layer_read_by(self, name: str) -> int | None:
        """How many layers have been passed through backwards when the gradient of what a part reads has come."""
        if name.startswith("blocks."):
            return int(name.split(".")[1])
        return self._layers if name in (*_LAST_NORMS, "loss") else None

    def _name_of(self, part: Callable[..., Any]) -> str:
        for name, module in self._model.named_modules():
            if module is part:
                return str(name)
        word = str(getattr(part, "__name__", type(part).__name__)).strip("_")
        return "loss" if word in _LOSSES else str(word)

    # -- marks ------------------------------------------------------------------------------------------------------

    def _enter(self, name: str) -> None:
        path = f"{self._open[-1]}/{name}" if len(self._open) > 1 else name
        self._open.append(path)
        self._marks.append((True, path, moment_on(self._device)))

    def _exit(self) -> None:
        path = self._open.pop()
        self._marks.append((False, path, moment_on(self._device)))


class _TimedExecutor(Executor):
    """Runs by another executor and takes the times."""

    def __init__(self, inner: Executor, timer: RegionTimer) -> None:
        self._inner, self._timer = inner, timer

    def __call__(self, part: Callable[..., Any], *arguments: Any) -> Any:
        return self._timer.timed(part, self._inner, arguments)


def _when_gradient_comes(tensor: Tensor, call: Callable[[], None]) -> None:
    tensor.register_hook(lambda _gradient: call())  # type: ignore[no-untyped-call]


def _tensors(arguments: Iterable[Any]) -> Iterator[Tensor]:
    """The tensors among some arguments, also those of a residual stream."""
    for argument in arguments:
        if isinstance(argument, Tensor):
            yield argument
        elif isinstance(argument, tuple):
            yield from _tensors(argument)
