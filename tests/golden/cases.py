"""Trainings whose losses and files must not change when the code is rearranged: each a command line, typed as users do.

The command line is the joint that stays while everything behind it moves. Every case has thirty steps and takes about
a second; together they cross every way a step is computed on a CPU.
"""

from __future__ import annotations

import random
from pathlib import Path

SHAPE = "--d-model 32 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 64 --ctx 32 --batch 4 --vocab 300"
TEXT = "train from-scratch --corpus corpus"
# Half a batch is computed beside the other only from 2,048 tokens on, and where a step is more than small.
LARGE = "--d-model 128 --n-layers 2 --n-heads 4 --n-kv 2 --d-ff 256 --ctx 128 --batch 16 --vocab 300"
# The donor is the run of the case above it.
WARM = "train warm-start --corpus corpus --donor runs/halves/weights/step_30.gguf --ctx 32 --batch 4"
# The base is the run `q8`: matrices that stay packed.
BASE = "--base runs/q8/weights/step_30.gguf --corpus corpus --ctx 32 --batch 4"
LORA = f"train lora {BASE} --rank 4"
# All rates and the decay are stated, so that a rule that is fitted anew changes no case; AdamW has one rate for all.
RATES = "--lr 1e-3 --weight-decay 0.1"
ADAMW, MUON = f"--optimizer adamw {RATES}", f"--optimizer muon {RATES} --lr-embedding 2e-3 --lr-vectors 2e-3"
IMAGES = "train vit-tiny --images digits --preset vit-tiny-8 --d-model 32 --n-layers 2 --n-heads 4 --d-ff 64 --batch 16"

CASES = {
    "llama": f"{TEXT} {SHAPE} --graph off {ADAMW}",
    "recorded": f"{TEXT} {SHAPE} --graph on {ADAMW}",
    "muon": f"{TEXT} {SHAPE} --graph off {MUON} --schedule wsd",
    "gpt2": f"{TEXT} {SHAPE.replace('--n-kv 2', '')} --arch gpt2 --graph off {ADAMW}",
    "gpt2-muon-recorded": f"{TEXT} {SHAPE.replace('--n-kv 2', '')} --arch gpt2 --graph on {MUON}",
    "documents": f"{TEXT} {SHAPE} --graph off --documents {ADAMW}",
    "accumulation": f"{TEXT} {SHAPE} --graph off --batch-tokens 512 --clip 0.5 {ADAMW}",
    "accumulation-recorded": f"{TEXT} {SHAPE} --graph on --batch-tokens 256 {MUON}",
    "biases-untied": f"{TEXT} {SHAPE} --graph off --qkv-bias --untied --head-dim 16 --schedule constant {ADAMW}",
    "halves": f"{TEXT} {LARGE} {MUON}",
    "bfloat16": f"{TEXT} {SHAPE} --graph off --dtype bfloat16 --file-type bf16 {ADAMW}",
    "compiled": f"{TEXT} {SHAPE} --graph off --compile on {ADAMW}",
    "q8": f"{TEXT} {SHAPE} --graph off --file-type q8_0 --bias-correction seed {ADAMW}",
    "vit": f"{IMAGES} --ema 0.9",
    "vit-toy": f"{IMAGES} --pooling cls --norm rms --norm-eps 1e-5 --act silu --no-bias --init seed --ema 0",
    "warm-select": f"{WARM} --init select --d-model 64 --n-layers 1 {ADAMW}",
    "warm-pca": f"{WARM} --init pca --d-model 48 --n-heads 4 --n-layers 1 {ADAMW}",
    "warm-widen": f"{WARM} --init widen:2 {ADAMW}",
    "lora": f"{LORA} {ADAMW}",
    "lora-muon-dropout": f"{LORA} --targets q,gate,down --rslora --dropout 0.2 --optimizer muon {RATES}",
    "dora": f"{LORA} --dora --alpha 4 {ADAMW}",
    "finetune": f"train finetune {BASE} {ADAMW}",
}

COMMON = "--steps 30 --seed 1 --device cpu --eval-every 10 --checkpoint-every 15"
TEXT_COMMON = "--eval-tokens 512 --sample-every 15 --sample-tokens 8 --prompt the --cache cache"


def command(name: str) -> list[str]:
    """The words behind `linnet` that train a case, to be run in a folder with `corpus/`."""
    case = CASES[name]
    words = f"{case} {COMMON} {'' if 'vit-tiny' in case else TEXT_COMMON} --runs runs --run-id {name}"
    return words.split()


def write_corpus(folder: Path) -> None:
    """Forty documents of words drawn by a fixed seed, with letters beyond ASCII among them."""
    pick = random.Random(0)
    stems = ["".join(pick.choice("abcdeilmnorstuäé") for _ in range(pick.randint(2, 7))) for _ in range(400)]
    folder.mkdir()
    for number in range(40):
        text = " ".join(stems[min(int(pick.expovariate(0.02)), 399)] for _ in range(pick.randint(50, 400)))
        (folder / f"{number:02}.txt").write_text(text.replace(" a", ".\n"), encoding="utf-8")
