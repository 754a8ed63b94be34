"""A training loop of your own, logged through Linnet: softmax regression on generated clusters, in plain numpy.

python examples/own_loop.py
linnet show latest
"""

from __future__ import annotations

import time

import numpy as np

import linnet

CLASSES, WIDTH, POINTS, STEPS, BATCH, SEED = 10, 32, 20_000, 2_000, 128, 0


def clusters(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points around ten centres, so close together that no line tells all of them apart."""
    labels = rng.integers(CLASSES, size=POINTS)
    centres = rng.normal(size=(CLASSES, WIDTH))
    return centres[labels] + rng.normal(scale=2.0, size=(POINTS, WIDTH)), labels


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities along the last axis."""
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def main() -> None:
    """Train, log every step, evaluate now and then on points that were held out."""
    rng = np.random.default_rng(SEED)
    x, y = clusters(rng)
    x_train, y_train, x_held, y_held = x[2_000:], y[2_000:], x[:2_000], y[:2_000]
    weights = np.zeros((WIDTH, CLASSES))
    config = {"lr": 0.004, "batch": BATCH, "seed": SEED, "schedule": "cosine"}

    with linnet.start(
        arch="softmax", config=config, total_steps=STEPS, tags=["demo"], goals={"accuracy": "max"}
    ) as run:
        for step in range(1, STEPS + 1):
            began = time.perf_counter()
            lr = config["lr"] * 0.5 * (1 + np.cos(np.pi * step / STEPS))
            rows = rng.integers(len(x_train), size=BATCH)
            probabilities = softmax(x_train[rows] @ weights)
            loss = -np.log(probabilities[np.arange(BATCH), y_train[rows]]).mean()
            probabilities[np.arange(BATCH), y_train[rows]] -= 1
            gradient = x_train[rows].T @ probabilities / BATCH
            weights -= lr * gradient
            wall_us = int(1e6 * (time.perf_counter() - began))
            run.log(step, loss=loss, lr=lr, grad_norm=np.linalg.norm(gradient), wall_us=wall_us)
            if step % 100 == 0:
                held = softmax(x_held @ weights)
                held_loss = -np.log(held[np.arange(len(y_held)), y_held]).mean()
                run.eval(step, "validation", loss=held_loss, accuracy=(held.argmax(-1) == y_held).mean())
        np.save(run.artifacts_dir / "weights.npy", weights)
        run.artifact(run.artifacts_dir / "weights.npy")
        print(f"run {run.run_id} → {run.run_dir}")


if __name__ == "__main__":
    main()
