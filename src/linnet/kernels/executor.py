"""`Executor`: how the modules of a model are run: eagerly, each kind of module compiled once, or computed twice.

A model is compiled by its layers, not whole: they are alike, so one compiled layer serves them all, and the first step
comes after seconds. `CastWeights` keeps the weights that compiled layers read in a lower precision.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch._functorch.config
import torch.compiler.config
from torch import Tensor, nn

_AUTOGRAD = {
    # What is cheap is made again in the backward pass rather than kept: norms, activations, sums. By default the
    # compiler keeps whatever a matmul reads there.
    "ban_recompute_used_far_apart": False,
    "ban_recompute_long_fusible_chains": False,
    "ban_recompute_materialized_backward": False,
    # What was traced is found again by the next process, also with autograd functions of our own: 3 s of its first step
    # on an H200. By default these are left out, since not all of their code need be in the key; see `source_digest`.
    "autograd_cache_allow_custom_autograd_functions": True,
}

# Shapes of one function that torch compiles before it gives up. They are counted through the life of the process: a
# notebook or a sweep with nine models would end at its ninth.
_SHAPES = 256


class Executor:
    """Eager execution."""

    def watch(self, parameters: Iterable[nn.Parameter], on_gradient: Callable[[Tensor], None]) -> None:
        """From now on call a function in the backward pass with each parameter whose gradient has come."""
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(on_gradient)

    def __call__(self, part: Callable[..., Any], *arguments: Any) -> Any:
        """Run a module, or a function of a module's own, on these arguments."""
        return part(*arguments)

    def before_step(self) -> None:
        """The weights have changed."""

    def after_backward(self) -> None:
        """A backward pass has left gradients."""


eager = Executor()


class Compiled(Executor):
    """Each kind of module, and each function, compiled at its first call. Linear layers read weights in `dtype`.

    `ordered`: no kernel for a sum is chosen by a trial of its speed. They add in different orders, and another trial
    may come out otherwise: the next process would give other bits.
    """

    def __init__(self, dtype: torch.dtype = torch.float32, *, ordered: bool = True) -> None:
        self._options: dict[str, Any] = {"deterministic": ordered}
        self._compiled: dict[object, Callable[..., Any]] = {}
        self._signatures: set[object] = set()  # what was compiled, with shapes and dtypes of the arguments
        self._weights = CastWeights(dtype)

    def __call__(self, part: Callable[..., Any], *arguments: Any) -> Any:
        kind: object = part
        function = part
        if isinstance(part, nn.Module):
            kind, function, arguments = type(part), type(part).forward, (self._weights.copy_of(part), *arguments)
        if kind not in self._compiled:
            self._compiled[kind] = torch.compile(function, fullgraph=True, dynamic=False, options=self._options)
        # Only what is new is compiled, and to change these settings and back takes 60 µs.
        signature = (part, torch.is_grad_enabled(), *map(_signature, arguments))
        if signature in self._signatures:
            return self._compiled[kind](*arguments)
        self._signatures.add(signature)
        with (
            torch._functorch.config.patch(_AUTOGRAD),
            torch._dynamo.config.patch(recompile_limit=_SHAPES),
            torch.compiler.config.patch(cache_key_tag=source_digest()),  # type: ignore[attr-defined]
        ):
            return self._compiled[kind](*arguments)

    def watch(self, parameters: Iterable[nn.Parameter], on_gradient: Callable[[Tensor], None]) -> None:
        self._weights.watch(parameters, on_gradient)

    def before_step(self) -> None:
        self._weights.refresh()

    def after_backward(self) -> None:
        self._weights.collect()


class Recomputed(Executor):
    """Activation checkpointing: what blocks keep for the backward pass is computed again there (`recompute`).

    - `blocks`: the modules that this is done for; they run by the executor `inner`.
    - `cheap`: results of products and of attention are kept all the same, so that little is computed twice. Compiled
      modules do that by themselves.
    """

    def __init__(self, inner: Executor, blocks: Iterable[nn.Module], *, cheap: bool) -> None:
        self._inner, self._blocks, self._cheap = inner, set(blocks), cheap

    def __call__(self, part: Callable[..., Any], *arguments: Any) -> Any:
        if (
            part not in self._blocks
            or not torch.is_grad_enabled()
            or (self._cheap and isinstance(self._inner, Compiled))
        ):
            return self._inner(part, *arguments)
        from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts, noop_context_fn

        contexts = partial(create_selective_checkpoint_contexts, _keep_products) if self._cheap else noop_context_fn
        return checkpoint(
            self._inner, part, *arguments, use_reentrant=False, context_fn=contexts, preserve_rng_state=False
        )

    def watch(self, parameters: Iterable[nn.Parameter], on_gradient: Callable[[Tensor], None]) -> None:
        self._inner.watch(parameters, on_gradient)

    def before_step(self) -> None:
        self._inner.before_step()

    def after_backward(self) -> None:
        self._inner.after_backward()


# Of linear layers. Attention on a CPU writes into its own products, so they cannot be kept.
_PRODUCTS = ("mm", "addmm", "linear", "_linear_pointwise")


def _keep_products(context: object, operation: Any, *arguments: Any, **named: Any) -> Any:
    """A policy of torch's selective checkpointing."""
    from torch.utils.checkpoint import CheckpointPolicy

    name = str(getattr(operation, "overloadpacket", operation)).rpartition(".")[2]
    is_dear = name in _PRODUCTS or "scaled_dot_product" in name
    return CheckpointPolicy.MUST_SAVE if is_dear else CheckpointPolicy.PREFER_RECOMPUTE


@cache
def source_digest(package: Path = Path(__file__).parents[1]) -> str:
    """A digest of the code that may be compiled: another version of it finds nothing that this one compiled."""
    digest = hashlib.sha256()
    for room in ("kernels", "models"):
        for path in sorted((package / room).rglob("*.py")):
            digest.update(path.read_bytes())
    return f"linnet {digest.hexdigest()}"


def _signature(argument: Any) -> object:
    """What code is compiled for: of a tensor shape, dtype and whether it has a gradient."""
    if isinstance(argument, tuple):  # a residual stream
        return tuple(map(_signature, argument))
    if isinstance(argument, Tensor):
        return argument.shape, argument.dtype, argument.requires_grad
    return argument


class CastWeights:
    """For each module a copy that shares everything with it but the parameters of its linear layers, in `dtype`.

    A step begins with `refresh`; after each backward pass `collect` adds the copies' gradients to those of the
    parameters, in float32. A cast for each matrix, and one for its gradient, is a fifth of a small model's kernels.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype = dtype
        self._copies: dict[nn.Module, nn.Module] = {}
        self._masters: list[Tensor] = []
        self._cast: list[Tensor] = []

    def copy_of(self, module: nn.Module) -> nn.Module:
        """The module with cast weights; the module itself where there is nothing to cast."""
        if module not in self._copies:
            self._copies[module] = self._copied(module)
        return self._copies[module]

    @torch.no_grad()
    def refresh(self) -> None:
        """Cast all weights again."""
        if self._masters:
            torch._foreach_copy_(self._cast, self._masters)

    @torch.no_grad()
    def collect(self) -> None:
        """Add the gradients of the cast weights to those of the parameters."""
        pairs = zip(self._masters, self._cast, strict=True)
        reached = [(master, cast, cast.grad) for master, cast in pairs if cast.grad is not None]
        if not reached:
            return
        fresh = [(master, gradient) for master, _, gradient in reached if master.grad is None]
        exact = _side_by_side([master for master, _ in fresh])
        if fresh:
            torch._foreach_copy_(exact, [gradient for _, gradient in fresh])
        later = [(master.grad, gradient) for master, _, gradient in reached if master.grad is not None]
        if later:
            torch._foreach_add_([total for total, _ in later], [gradient for _, gradient in later])
        for (master, _), gradient in zip(fresh, exact, strict=True):
            master.grad = gradient
        for _, cast, _ in reached:
            cast.grad = None

    def watch(self, parameters: Iterable[nn.Parameter], on_gradient: Callable[[Tensor], None]) -> None:
        """Add the gradient of each cast weight to its parameter's as soon as it comes, and tell of that one."""
        copies = {id(master): cast for master, cast in zip(self._masters, self._cast, strict=True)}
        for parameter in parameters:
            if id(parameter) in copies:
                copies[id(parameter)].register_post_accumulate_grad_hook(
                    partial(_add_to_master_grad, parameter, on_gradient)
                )
            else:
                parameter.register_post_accumulate_grad_hook(on_gradient)

    def _copied(self, module: nn.Module) -> nn.Module:
        shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
        cast = {
            id(parameter): parameter
            for part in module.modules()
            if isinstance(part, nn.Linear)
            for parameter in part.parameters(recurse=False)
            if parameter.dtype != self._dtype
        }
        if not cast:
            return module
        for key, master in cast.items():
            copied = nn.Parameter(master.detach().to(self._dtype), requires_grad=master.requires_grad)
            shared[key] = copied
            self._masters.append(master)
            self._cast.append(copied)
        return copy.deepcopy(module, shared)


def _side_by_side(tensors: list[Tensor]) -> list[Tensor]:
    """Memory for tensors like these, those of one shape next to each other: Muon takes them as one batch."""
    counts: dict[tuple[torch.Size, torch.dtype], int] = {}
    for tensor in tensors:
        counts[tensor.shape, tensor.dtype] = counts.get((tensor.shape, tensor.dtype), 0) + 1
    device = tensors[0].device if tensors else None
    parts = {kind: iter(torch.empty(n, *kind[0], dtype=kind[1], device=device)) for kind, n in counts.items()}
    return [next(parts[tensor.shape, tensor.dtype]) for tensor in tensors]


@torch.no_grad()
def _add_to_master_grad(master: nn.Parameter, on_gradient: Callable[[Tensor], None], cast: Tensor) -> None:
    """The gradient of a cast weight goes to its parameter, whose gradient has a place already."""
    if master.grad is not None and cast.grad is not None:
        master.grad += cast.grad
        cast.grad = None
        on_gradient(master)
