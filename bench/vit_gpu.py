"""Whole training steps of vision transformers on a GPU: ours, and `transformers`' compiled.

`ours(shape)` and `theirs(shape)` give images a second; `python bench/vit_gpu.py` prints both for every shape. Both
train the same shape with AdamW and clipping on the same bytes, which lie on the device.
"""

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

SHAPES: dict[str, tuple[str, int]] = {
    # name: (preset, images of a step)
    "vit-tiny, 224 px, 512 images": ("vit-tiny", 512),
    "vit-tiny-28, 1,024 images": ("vit-tiny-28", 1024),
}
TO_REACH = {"vit-tiny, 224 px, 512 images": 2.5, "vit-tiny-28, 1,024 images": 3.0}
_WARM, _STEPS, _ROUNDS = 12, 30, 3


def ours(shape: str, **changes: Any) -> float:
    """Images a second of `VitTiny.step` on bytes; `changes` are fields of the config, such as pooling="cls"."""
    from linnet.models import preset
    from linnet.recipes import VitOptions, VitSettings, VitTiny
    from linnet.train.hardware import choose

    name, batch = SHAPES[shape]
    config = preset(name, **{"num_classes": 1000 if name == "vit-tiny" else 10, **changes})
    settings = VitSettings(batch=batch, optimizer="adamw", lr=1e-3, device=_device())
    weights = config.n_layers * (4 * config.d_model + 2 * config.d_ff) * config.d_model
    hardware = choose(settings, tokens=batch * config.tokens, weights=weights)
    recipe = VitTiny(settings, hardware, VitOptions(init="seed", ema=0.0))
    recipe.realize(config)
    recipe.build()
    images, labels = _data(batch, config.num_channels, config.image_size, config.num_classes)
    return _rate(lambda: recipe.step(images, labels, 1e-3), batch)


def theirs(shape: str, compile: bool = True) -> float:
    """Images a second of `ViTForImageClassification`: bf16 autocast, torch.compile, fused AdamW, clipping."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    from linnet.models import preset

    name, batch = SHAPES[shape]
    like = preset(name, num_classes=1000 if name == "vit-tiny" else 10)
    model = ViTForImageClassification(
        ViTConfig(
            hidden_size=like.d_model,
            num_hidden_layers=like.n_layers,
            num_attention_heads=like.n_heads,
            intermediate_size=like.d_ff,
            image_size=like.image_size,
            patch_size=like.patch_size,
            num_channels=like.num_channels,
            num_labels=like.num_classes,
            hidden_act="gelu_pytorch_tanh",
        )
    ).to(_device())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.05, fused=True)
    images, labels = _data(batch, like.num_channels, like.image_size, like.num_classes)
    forward: Any = torch.compile(model) if compile else model

    def step() -> None:
        with torch.autocast(_device(), torch.bfloat16):
            loss = forward(pixel_values=images.float() / 127.5 - 1, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return _rate(step, batch)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _data(batch: int, channels: int, size: int, classes: int) -> tuple[Any, Any]:
    import torch

    made = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (batch, channels, size, size), dtype=torch.uint8, generator=made)
    labels = torch.randint(0, classes, (batch,), generator=made)
    return images.to(_device()), labels.to(_device())


def _rate(step: Callable[[], Any], batch: int) -> float:
    """The best of a few rounds of steps that are queued without waiting, after the first ones are done."""
    import torch

    cuda = _device() == "cuda"
    warm, steps = (_WARM, _STEPS) if cuda else (1, 2)

    def wait() -> None:
        if cuda:
            torch.cuda.synchronize()

    for _ in range(warm):
        step()
    best = float("inf")
    for _ in range(_ROUNDS if cuda else 1):
        wait()
        began = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        best = min(best, (time.perf_counter() - began) / steps)
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
    return batch / best


def compare() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pooling", choices=("mean", "cls"), help="of ours only; theirs has a class token")
    chosen = parser.parse_args()
    changes = {} if chosen.pooling is None else {"pooling": chosen.pooling}
    for shape in SHAPES:
        mine, peer = ours(shape, **changes), theirs(shape)
        print(f"{shape}: ours {mine:,.0f} img/s, transformers {peer:,.0f} img/s, {mine / peer:.2f}×", flush=True)


if __name__ == "__main__":
    compare()
