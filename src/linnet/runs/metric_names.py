"""Which numbers of an event are metrics, what they are called, and which way is better."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

from linnet.runs.events import Event, as_number

ENVELOPE = frozenset(("kind", "t", "step", "phase", "epoch"))
MUNIN_SYSTEM = {  # the machine's metrics that munin names otherwise, and how many of ours one of its is
    "sys/cpu/user": ("sys/cpu_user", 1.0),
    "sys/cpu/system": ("sys/cpu_system", 1.0),
    "sys/memory/percent": ("sys/mem_used_pct", 1.0),
    "sys/memory/used": ("sys/mem_used_gb", 1e9),
    "sys/process/cpu": ("sys/proc_cpu_pct", 1.0),
    "sys/process/rss": ("sys/proc_mem_mb", 1e6),
    "sys/disk/read_bps": ("sys/disk_read_mbs", 1e6),
    "sys/disk/write_bps": ("sys/disk_write_mbs", 1e6),
    "sys/disk/busy": ("sys/disk_util_pct", 1.0),
}
LOSSES = ("loss", "train/loss", "train_loss")  # the metric to show when there is room for one
Goal = Literal["min", "max"]


def _set_of(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in text.split())


# A metric's goal by the words of its name; of several the last counts: it is the noun ("accuracy_loss" is a loss).
_MINIMIZED = _set_of(
    "loss losses error errors err perplexity ppl nll xent crossentropy ce bce mse rmse mae mape smape msle rmsle wer",
    "cer eer ece brier fid fpr bpb bpc bpt bpd bitsperbyte bitsperchar bitspercharacter bitspertoken bitsperdim",
)
_MAXIMIZED = _set_of(
    "acc accuracy auc auroc rocauc auprc prauc ap map f1 fscore fbeta precision recall sensitivity specificity tpr",
    "bleu rouge rouge1 rouge2 rougel meteor chrf score scores reward rewards return returns iou miou dice jaccard",
    "ndcg mrr r2 psnr ssim mcc kappa elbo loglikelihood exactmatch winrate hitrate successrate passrate",
)
# Beside one of these the name is not the figure itself: `loss_scale`, `acc_steps`, `reward_std`, `score_threshold`.
_NO_GOAL = _set_of(
    "scale scaler weight weights coef coeff coefficient lambda threshold lr steps std stddev stderr var variance time",
    "seconds ms us tokens rejected",  # what a rejected answer is worth may rise while the margin does
)
_HELD_OUT = _set_of("val valid validation test eval evaluation dev held heldout")
_SPLITS = _HELD_OUT | _set_of("train training out all total")
_UNFIT = re.compile(r'["\\\x00-\x1f\ud800-\udfff]')
_LONGEST_NAME = 200  # characters of a name that are judged
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_SPLIT_PREFIX = re.compile(r"^(train|valid|val|test|eval|dev)(?=[a-z])")


def rows(event: Event) -> Iterator[tuple[str, float]]:
    """The metrics of an event.

    A step's numbers keep their names (`loss`); those of another phase carry it (`decode/logprob`); an evaluation's
    carry its own (`validation/loss`); those of `align` and `mask` the weight's (`align/blk.0.attn_q.weight/cos`); the
    machine's begin with `sys/`.
    """
    data = event.data
    if event.kind == "step":
        phase = data.get("phase")
        prefix = "" if phase in (None, "train") or not isinstance(phase, str) else f"{phase}/"
        yield from _numbers(data, prefix)
        yield from _numbers(_mapping(data.get("values")), prefix, frozenset())
    elif event.kind == "scalars":
        yield from _numbers(_mapping(data.get("values")), "", frozenset())
    elif event.kind == "eval":
        name = data.get("name")
        prefix = f"{name}/" if isinstance(name, str) and name else "eval/"
        yield from _numbers(data, prefix, ENVELOPE | {"extra"})
        yield from _numbers(_mapping(data.get("extra")), prefix, frozenset())
    elif event.kind in ("align", "mask"):
        weight = data.get("wname")
        name = weight if isinstance(weight, str) and weight else f"{data.get('li')}.{data.get('wi')}"
        yield from _numbers(data, f"{event.kind}/{name}/", ENVELOPE | {"li", "wi"})
    elif event.kind == "system":
        yield from _system(data)


def is_field_name(name: str) -> bool:
    """May a field of a decoder, made for lines that have this metric, be called so?"""
    return _UNFIT.search(name) is None


def counts_as_training(event: Event) -> bool:
    """Does the event's step count the steps of training? A `step` of decoding or serving counts tokens or requests."""
    return event.kind != "step" or event.data.get("phase") not in ("decode", "serve")


def goal_of(name: str, goals: Mapping[str, str]) -> Goal | None:
    """Which way is better: the declared goal, else what the name says; None where neither tells.

    The name is judged by the words of its last part: `validation/bits_per_byte`, `val_acc`, `top5`. A last part that
    only names a split of the data (`Loss/train`) leaves it to the one before.
    """
    declared = goals.get(name)
    if declared in ("min", "max"):
        return "min" if declared == "min" else "max"
    return None if name.startswith("sys/") else _goal_by_name(name)


@lru_cache(maxsize=4096)
def _goal_by_name(name: str) -> Goal | None:
    words: list[str] = []
    for part in reversed(name[-_LONGEST_NAME:].split("/")):
        words = [word.lower() for word in _WORD.findall(part)]
        if not all(word in _SPLITS for word in words):
            break
    if _NO_GOAL.intersection(words):
        return None
    for end in range(len(words), 0, -1):
        for begin in range(max(0, end - 3), end):  # the longest first: "log likelihood" before "likelihood"
            term = "".join(words[begin:end])
            if goal := _goal_of_term(term) or _goal_of_term(_SPLIT_PREFIX.sub("", term)):
                return goal
    return None


def _goal_of_term(term: str) -> Goal | None:
    if term in _MINIMIZED or term.endswith("loss"):
        return "min"
    return "max" if term in _MAXIMIZED or re.fullmatch("top[0-9]+", term) else None


def main_metric(names: Iterable[str]) -> str | None:
    """The metric to show when there is room for one: the loss, else one that is called so, else the first."""
    known = list(names)
    for loss_name in LOSSES:
        if loss_name in known:
            return loss_name
    shown = [name for name in known if not name.startswith("sys/")]
    return next((name for name in shown if "loss" in name.lower()), shown[0] if shown else None)


@lru_cache(maxsize=16_384)
def quantity_of(name: str) -> str:
    """What a metric measures, on whatever data: `loss` of `validation/loss`, `train_loss` and `Loss/train`.

    Metrics of one quantity can share a y axis.
    """
    for part in reversed(name[-_LONGEST_NAME:].split("/")):
        words = [_split_and_term(word)[1] for word in _WORD.findall(part)]
        if kept := [word for word in words if word]:
            return " ".join(kept)
    return name


@lru_cache(maxsize=16_384)
def is_held_out(name: str) -> bool:
    """Is the metric of data that is not trained on, as far as its name says: `validation/loss`, `val_acc`?"""
    return any(_split_and_term(word)[0] in _HELD_OUT for word in _WORD.findall(name[-_LONGEST_NAME:]))


def _split_and_term(word: str) -> tuple[str, str]:
    """The split of the data and the quantity that a word names; `valloss` names both, `value` no split."""
    word = word.lower()
    if word in _SPLITS:
        return word, ""
    prefix = _SPLIT_PREFIX.match(word)
    if prefix is not None and _goal_of_term(word[prefix.end() :]):
        return prefix[1], word[prefix.end() :]
    return "", word


def held_out_of(name: str, names: Iterable[str]) -> list[str]:
    """The same quantity on held-out data: `validation/loss` of `loss`; none of one that is held out itself."""
    if is_held_out(name):
        return []
    quantity = quantity_of(name)
    return [other for other in names if is_held_out(other) and quantity_of(other) == quantity]


def main_metrics(names: Iterable[str]) -> list[str]:
    """The metrics to show when there is room for one chart: the main one, and the same on held-out data."""
    known = list(names)
    main = main_metric(known)
    return [] if main is None else [main, *held_out_of(main, known)]


def _numbers(
    fields: Mapping[str, Any], prefix: str, left_out: frozenset[str] = ENVELOPE
) -> Iterator[tuple[str, float]]:
    for name, value in fields.items():
        if name not in left_out and isinstance(value, int | float):  # NaN is back in its place; null says nothing
            yield prefix + name, as_number(value)


def _system(data: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for room in ("cpu", "memory", "swap", "process", "disk", "net"):
        yield from _numbers(_mapping(data.get(room)), f"sys/{room}/", frozenset())
    gpus = data.get("gpus")
    for index, gpu in enumerate(gpus if isinstance(gpus, list) else []):
        yield from _numbers(_mapping(gpu), f"sys/gpu{index}/", frozenset({"index", "name"}))
    ranks = data.get("ranks")
    for index, figures in enumerate(ranks if isinstance(ranks, list) else []):
        rank = _mapping(figures).get("rank", index)
        yield from _numbers(_mapping(figures), f"sys/rank{rank}/", frozenset({"rank", "host"}))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
