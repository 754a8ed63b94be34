"""`StepCost`: the seconds of a training step on one device, part by part, calculated from shapes and measured figures.

Each product, each attention and each pass over activations costs what the device's speed makes of its FLOP and bytes,
and a least time besides. How many bytes our kernels move for each number, and how many kernels there are, was counted
in profiles of whole steps on an H200 (docs/cost.md); it belongs to our code, not to the device. Shapes: M tokens that
pass at once, K and N what a product goes from and to, T tokens of a sequence, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from linnet.train.devices import Device
from linnet.train.layer_sizes import HEAD_ROWS, LayerSizes

_BF16, _FLOAT = 2, 4

# How the time of a product's FLOP and that of its bytes come together: more than the greater, less than the sum.
_ROOFLINE_POWER = 1.5
# A kernel of a step against the shortest product: its start, its end, and the gap behind it.
_PRODUCT_KERNEL, _OTHER_KERNEL = 1.8, 1.5
# Bytes that attention moves for each number of its output, forwards and backwards: cuDNN's kernels, our own for images.
_ATTENTION_BYTES, _IMAGE_ATTENTION_BYTES = 61.0, 41.5
_ATTENTION_KERNELS, _IMAGE_ATTENTION_KERNELS, _PRODUCT_KERNELS = 5, 2, 12  # a layer
# Bytes in bf16 for each number of the feed-forward part, the residual stream and q, k and v; kernels of a layer.
_GATED_BYTES, _GATED_KERNELS = (17.9, 38.8, 9.2), 15
_PLAIN_BYTES, _PLAIN_KERNELS = (12.5, 36.4, 4.35), 20
_LOGIT_BYTES = 4.8
_OPTIMISER_BYTES, _OPTIMISER_KERNELS = 57.0, 30  # AdamW, the norm of the gradient, weights cast and gradients collected
_ACCUMULATE_BYTES = 12.0  # a parameter, for each pass after the first
# Muon on a GPU: four quintics, whose products reach a part of the peak; bytes a number beyond AdamW's; kernels that
# follow each other (shapes are worked on side by side).
_MUON_ROUNDS, _MUON_PRODUCTS, _MUON_BYTES, _MUON_KERNELS = 4, 0.65, 8.0, 40
# Seconds in which the host launches a step that is not captured: compiled ones and a layer of theirs, a plain layer.
_HOST_COMPILED, _HOST_COMPILED_LAYER, _HOST_EAGER_LAYER = 10e-3, 0.9e-3, 2.9e-3
# Without compiling, what is not fused goes through the memory: times the bytes between products, for each logit, and
# kernels of a layer.
_EAGER_TIMES, _EAGER_LOGIT_BYTES, _EAGER_KERNELS = 4.2, 45.0, 51

# On a CPU: numbers that pass through element-wise operations for each of the feed-forward part, the residual stream and
# q, k and v; for each logit; operations of a layer and besides.
_CPU_NUMBERS, _CPU_PLAIN_NUMBERS, _CPU_LOGIT = (9.0, 19.0, 4.6), (6.0, 19.0, 4.6), 3.4
_CPU_LAYER_OPERATIONS, _CPU_OPERATIONS = 80, 60
_CPU_OPTIMISER_BYTES = 40.0
_CPU_MUON_BYTES, _CPU_MUON_INVERSES = 10.0, 7.0  # a number, beyond AdamW's; two inverses, in cubes of the shorter side
_CPU_CACHE, _CPU_CACHE_SPEED = 8 << 20, 4.0  # bytes that stay in a cache, and how much quicker that is than the memory
_CPU_RECORDED, _CPU_EAGER = 0.8, 5.0  # times the shortest operation: one that is repeated, one with its gradient


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step by what they are for.

    `kernels`: the least time of all kernels and the gaps between them, however few tokens there are; `host`: what the
    device waits for the host. `recompute`: layers that pass forwards a second time.
    """

    products: float
    attention: float
    elementwise: float
    loss: float
    optimiser: float
    kernels: float
    recompute: float = 0.0
    host: float = 0.0

    @property
    def seconds(self) -> float:
        """All of it."""
        return sum(self.parts().values())

    @property
    def work(self) -> float:
        """What becomes less with fewer tokens."""
        return self.products + self.attention + self.elementwise + self.loss + self.recompute

    @property
    def backward(self) -> float:
        """The backward pass, in which gradients may be summed while others are made; the head's comes with the loss."""
        return (self.work + self.kernels + self.host) * 0.6

    def parts(self) -> dict[str, float]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class StepShape:
    """What a step of one device does.

    - `rows`: sequences or images that pass at once, `passes` times for one step.
    - `parameters`: that are trained here; `muon`: the matrices among them that Muon moves.
    - `compiled`, `captured`: as `Hardware` has it. `recompute`: what of a layer's forward pass is done again: nothing,
      what is cheap (which compiled layers do anyway), or all of it.
    - `threads`: the share of a CPU's threads that the step has.
    """

    sizes: LayerSizes
    rows: int
    passes: int
    parameters: float
    muon: tuple[tuple[int, int, float], ...] = ()  # rows and columns of matrices, and how many there are
    compiled: bool = True
    captured: bool = False
    recompute: str = "off"
    threads: float = 1.0


def step_cost(shape: StepShape, device: Device) -> StepCost:
    """The seconds of a step on one device that waits for nobody."""
    return _on_cpu(shape, device) if device.kind == "cpu" else _on_gpu(shape, device)


def _on_gpu(shape: StepShape, device: Device) -> StepCost:
    sizes, tokens = shape.sizes, shape.rows * shape.sizes.tokens
    forward = sizes.layers * sum(_product(tokens, *matrix, _BF16, device) for matrix in sizes.matrices)
    pieces = -(-tokens // HEAD_ROWS["cuda"])
    head = 3 * pieces * _product(tokens / pieces, sizes.width, _padded(sizes.vocab), _BF16, device)
    moved_by_attention = (_IMAGE_ATTENTION_BYTES if sizes.of_images else _ATTENTION_BYTES) * tokens * sizes.attended
    attention = sizes.layers * (_attention_flops(shape) / device.attention + moved_by_attention / device.bandwidth)
    per_number, layer_kernels = (_GATED_BYTES, _GATED_KERNELS) if sizes.gated else (_PLAIN_BYTES, _PLAIN_KERNELS)
    times, per_logit = 1.0, _LOGIT_BYTES
    if not shape.compiled:
        times, per_logit, layer_kernels = _EAGER_TIMES, _EAGER_LOGIT_BYTES, _EAGER_KERNELS
    between = times * sizes.layers * tokens * _weighted(per_number, sizes) / device.bandwidth
    loss = tokens * sizes.vocab * per_logit / device.bandwidth
    other_kernels = layer_kernels + (_IMAGE_ATTENTION_KERNELS if sizes.of_images else _ATTENTION_KERNELS)
    floor = sizes.layers * (_PRODUCT_KERNEL * _PRODUCT_KERNELS + _OTHER_KERNEL * other_kernels)
    moved = _OPTIMISER_BYTES * shape.parameters + _MUON_BYTES * _muon_numbers(shape)
    moved += _ACCUMULATE_BYTES * shape.parameters * (shape.passes - 1)
    quintics = _MUON_ROUNDS * _muon_flops(shape, 2.0)
    optimiser = moved / device.bandwidth + quintics / (_MUON_PRODUCTS * device.products)
    fixed = _OPTIMISER_KERNELS + (_MUON_KERNELS if shape.muon else 0)
    recomputed = between / 3 if shape.recompute == "cheap" and not shape.compiled else 0.0
    if shape.recompute == "blocks":
        recomputed = forward + (attention + between) / 3
    cost = StepCost(
        products=shape.passes * (3 * forward + head),
        attention=shape.passes * attention,
        elementwise=shape.passes * between,
        loss=shape.passes * loss,
        optimiser=optimiser,
        kernels=(shape.passes * floor * _times(shape) + _OTHER_KERNEL * fixed) * device.kernel,
        recompute=shape.passes * recomputed,
    )
    if shape.captured:
        return cost
    a_pass = sizes.layers * (_HOST_COMPILED_LAYER if shape.compiled else _HOST_EAGER_LAYER) * _times(shape)
    launching = shape.passes * a_pass + (_HOST_COMPILED if shape.compiled else 0.0)
    return StepCost(**cost.parts() | {"host": max(0.0, launching - cost.seconds)})


def _on_cpu(shape: StepShape, device: Device) -> StepCost:
    sizes, tokens = shape.sizes, shape.rows * shape.sizes.tokens
    speed, elementwise = device.products * shape.threads, device.elementwise * shape.threads
    layers = sizes.layers * sum(2 * tokens * k * n for k, n in sizes.matrices)
    head = 6 * tokens * sizes.width * sizes.vocab
    attention = sizes.layers * 12 * shape.rows * sizes.attended * sizes.tokens**2
    numbers = _CPU_NUMBERS if sizes.gated else _CPU_PLAIN_NUMBERS
    between = sizes.layers * tokens * _weighted(numbers, sizes) / elementwise
    a_pass = sizes.layers * _CPU_LAYER_OPERATIONS * _times(shape) + _CPU_OPERATIONS
    recomputed = between / 3 + attention / 3 / speed if shape.recompute != "off" else 0.0
    recomputed += layers / speed if shape.recompute == "blocks" else 0.0
    per_operation = device.kernel * (_CPU_RECORDED if shape.captured else _CPU_EAGER)
    moved = _CPU_OPTIMISER_BYTES * shape.parameters + _CPU_MUON_BYTES * _muon_numbers(shape)
    moved += _ACCUMULATE_BYTES * shape.parameters * (shape.passes - 1)
    cached = 4 * _FLOAT * shape.parameters <= _CPU_CACHE  # weights, gradients, two moments
    bandwidth = device.bandwidth * (_CPU_CACHE_SPEED if cached else 1.0)
    return StepCost(
        products=shape.passes * (3 * layers + head) / speed,
        attention=shape.passes * attention / speed,
        elementwise=shape.passes * between,
        loss=shape.passes * tokens * sizes.vocab * _CPU_LOGIT / elementwise,
        optimiser=moved / bandwidth + _muon_flops(shape, _CPU_MUON_INVERSES) / speed,
        kernels=shape.passes * a_pass * per_operation,
        recompute=shape.passes * recomputed,
    )


def _times(shape: StepShape) -> float:
    """How many kernels there are against a step that keeps everything: a forward pass is a third of them."""
    return 4 / 3 if shape.recompute == "blocks" else 1.0


def _product(m: float, k: int, n: int, item: int, device: Device) -> float:
    """Seconds of one product [M, K] × [K, N]: its FLOP and its bytes, which overlap in part."""
    arithmetic = 2 * m * k * n / device.products
    traffic = item * (m * k + k * n + m * n) / device.bandwidth
    return float((arithmetic**_ROOFLINE_POWER + traffic**_ROOFLINE_POWER) ** (1 / _ROOFLINE_POWER))


def _attention_flops(shape: StepShape) -> float:
    """Of a layer, forwards and backwards; what a causal mask hides is not computed."""
    sizes = shape.sizes
    return (14 if sizes.of_images else 7) * shape.rows * sizes.attended * float(sizes.tokens) ** 2


def _weighted(weights: tuple[float, float, float], sizes: LayerSizes) -> float:
    return weights[0] * sizes.d_ff + weights[1] * sizes.width + weights[2] * sizes.qkv


def _padded(vocab: int) -> int:
    return -(-vocab // 64) * 64


def _muon_flops(shape: StepShape, cubes: float) -> float:
    """Two products with each matrix, and work on its Gram matrix in so many cubes of the shorter side."""
    sides = ((min(rows, columns), max(rows, columns), count) for rows, columns, count in shape.muon)
    return sum(count * (4.0 * short**2 * long + cubes * short**3) for short, long, count in sides)


def _muon_numbers(shape: StepShape) -> float:
    return sum(rows * columns * count for rows, columns, count in shape.muon)
