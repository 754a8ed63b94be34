"""Shapes by name, and shapes that cannot be."""

from __future__ import annotations

import subprocess
import sys

import pytest

from linnet.errors import UsageError
from linnet.gguf import RopeScaling
from linnet.models import PRESETS, GPT2Config, LlamaConfig, build, preset

SHAPE = {"vocab": 100, "d_model": 64, "n_heads": 4, "n_kv": 2, "d_ff": 96, "n_layers": 1, "ctx": 16}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"n_heads": 5, "n_kv": 5}, "n_heads 5 does not divide d_model 64: choose n_heads from 1, 2, 4, 8, 16, 32"),
        ({"n_kv": 3}, "n_kv 3 does not divide n_heads 4: choose n_kv from 1, 2, 4"),
        ({"n_heads": 64, "n_kv": 64}, "the head size is 1, and rotary positions turn pairs: make it even"),
        ({"head_dim": 7}, "the head size is 7, and rotary positions turn pairs"),
        ({"head_dim": -2}, "head_dim is -2: give an even number, or 0"),
        ({"vocab": 0}, "vocab is 0: give a whole number from 1"),
        ({"ctx": 1.5}, "ctx is 1.5: give a whole number from 1"),
        ({"rms_eps": 0.0}, "rms_eps is 0.0: give a number above 0"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_what_to_change(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        LlamaConfig(**SHAPE | changes)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_a_file_may_state_positions_that_no_model_here_computes() -> None:
    config = LlamaConfig(**SHAPE, rope_scaling=RopeScaling("yarn", 2.0, 16))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="rope_scaling 'yarn' is not supported: use linear, llama3"):
        build(config)
    with pytest.raises(UsageError, match="rope_scaling: wrong factor; expected above 0, found 0"):
        RopeScaling("linear", 0.0)


def test_gpt2_heads_must_divide_but_may_be_odd() -> None:
    with pytest.raises(UsageError, match="n_heads 5 does not divide d_model 63: choose n_heads from 1, 3, 7, 9"):
        GPT2Config(100, 63, 5, 96, 1, 16)
    assert GPT2Config(100, 63, 9, 96, 1, 16).head_size == 7


def test_presets_have_the_sizes_they_are_named_for() -> None:
    sizes = {name: build(PRESETS[name]).n_params() for name in ("tiny", "demo", "nano")}
    assert sizes == {"tiny": 122_368, "demo": 3_148_224, "nano": 15_191_712}
    assert preset("nano", vocab=4096, ctx=512).vocab == 4096
    assert preset("smollm2-135m").arch == "llama" and preset("gpt2-124m").arch == "gpt2"


def test_a_mistyped_preset_or_field_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match=r"there is no preset 'nanno'; did you mean nano\?"):
        preset("nanno")
    with pytest.raises(UsageError, match=r"a gpt2 has no field 'n_layer'; did you mean n_layers\?"):
        preset("gpt2-124m", n_layer=3)


def test_flops_follow_nanogpts_convention() -> None:
    model = build(GPT2Config(100, 64, 4, 256, 2, 16))
    without_positions = model.n_params() - 16 * 64
    assert model.flops_per_token(10) == 6 * without_positions + 12 * 2 * 64 * 10


def test_configs_and_presets_need_no_torch() -> None:
    code = (
        "import sys; from linnet.models import PRESETS, LlamaConfig; import linnet.architectures.parameters;"
        " sys.exit(' '.join({'torch', 'numpy'} & set(sys.modules)) or 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_compiler_is_loaded_by_who_compiles() -> None:
    code = "import sys, linnet.infer.generation, linnet.models.llama; sys.exit('torch._dynamo' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
