"""What an observer sees is what `transformers` computes at the same places, on the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from linnet.errors import UsageError
from linnet.models import ViT, build, from_transformers
from linnet.models.observation import CKA_REGIONS, Activations, Attention, Observer, Region, activations, observe
from tests.models.test_parity import IDS_BT, peer, taken_over
from tests.models.test_vit import SMALL, pixels

# Where `transformers` computes what a region is, by the last part of a module's name: its output, or what it reads.
LLAMA_OUT = {
    "input_layernorm": "attn_norm",
    "v_proj": "attn_v",
    "o_proj": "attn_out",
    "post_attention_layernorm": "ffn_norm",
    "down_proj": "ffn_out",
}
LLAMA_IN = {"post_attention_layernorm": "resid_post_attn", "down_proj": "ffn_act"}
GPT2_OUT = {"ln_1": "attn_norm", "attn.c_proj": "attn_out", "ln_2": "ffn_norm", "mlp.c_proj": "ffn_out"}
GPT2_IN = {"ln_2": "resid_post_attn", "mlp.c_proj": "ffn_act"}
VIT_OUT = {
    "layernorm_before": "attn_norm",
    "v_proj": "attn_v",
    "o_proj": "attn_out",
    "layernorm_after": "ffn_norm",
    "mlp.fc2": "ffn_out",
}
VIT_IN = {"layernorm_after": "resid_post_attn", "mlp.fc2": "ffn_act"}


class Everything(Activations):
    """Keeps attention too."""

    def __init__(self) -> None:
        super().__init__()
        self.attentions: dict[int, Attention] = {}

    def attention(self, layer: int, attention: Attention) -> None:
        self.attentions[layer] = attention


def hooked(model: Any, layers: Any, out: dict[str, str], read: dict[str, str]) -> dict[Region, Tensor]:
    """By torch's own hooks on another model: filled when it is called."""
    seen: dict[Region, Tensor] = {}
    for number, layer in enumerate(layers):
        for name, module in layer.named_modules():
            for end, region in out.items():
                if name.endswith(end):
                    key = Region(region, number)
                    module.register_forward_hook(lambda m, i, o, key=key: seen.update({key: o}))
            for end, region in read.items():
                if name.endswith(end):
                    key = Region(region, number)
                    module.register_forward_pre_hook(lambda m, i, key=key: seen.update({key: i[0]}))
    return seen


def check(ours: Everything, theirs: dict[Region, Tensor], output: Any) -> None:
    """Every region that both have, the residual stream, and attention."""
    for region, expected in theirs.items():
        values = ours[region]
        if region.name == "attn_v":
            values = values.transpose(1, 2).flatten(2)
        assert torch.allclose(values, expected, atol=1e-5, rtol=1e-5), region
    embedded, *after, normed = output.hidden_states
    assert torch.allclose(ours[Region("embd")], embedded, atol=1e-5)
    for number, hidden in enumerate(after):
        assert torch.allclose(ours[Region("resid_post_block", number)], hidden, atol=1e-5), number
    assert ours[Region("resid_post_block", len(after))].shape == embedded.shape
    assert torch.allclose(ours[Region("output_norm")], normed, atol=1e-5)
    for number, expected in enumerate(output.attentions):
        assert torch.allclose(ours.attentions[number].probabilities(), expected, atol=1e-5), number
        part = ours.attentions[number].probabilities(slice(3, 7))
        assert torch.allclose(part, expected[:, :, 3:7], atol=1e-5)


@pytest.mark.parametrize(("kind", "out", "read"), [("grouped", LLAMA_OUT, LLAMA_IN), ("gpt2", GPT2_OUT, GPT2_IN)])
@pytest.mark.parametrize("trains", [False, True], ids=["evaluated", "trained"])
def test_regions_of_a_language_model_are_those_of_transformers(
    kind: str, out: dict[str, str], read: dict[str, str], trains: bool
) -> None:
    theirs = peer(kind)
    theirs.set_attn_implementation("eager")
    ours, seen = taken_over(theirs), Everything()
    layers = theirs.transformer.h if kind == "gpt2" else theirs.model.layers
    expected = hooked(theirs, layers, out, read)
    with torch.set_grad_enabled(trains), observe(ours, seen):
        ours(IDS_BT)
    with torch.no_grad():
        output = theirs(input_ids=IDS_BT, output_hidden_states=True, output_attentions=True)
    check(seen, expected, output)
    assert torch.allclose(seen[Region("logits")], output.logits, atol=1e-5)
    heads = (ours.config.n_heads, ours.config.n_kv, ours.config.n_kv)
    for name, count in zip(("attn_q", "attn_k", "attn_v"), heads, strict=True):
        assert seen[Region(name, 1)].shape == (3, count, 40, ours.config.head_size)


def test_regions_of_a_vision_transformer_are_those_of_transformers() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 3, "intermediate_size": 96}
    config = transformers.ViTConfig(
        **sizes, image_size=16, patch_size=4, hidden_act="gelu_pytorch_tanh", num_labels=5, initializer_range=0.1
    )
    theirs = transformers.ViTForImageClassification(config)
    theirs.set_attn_implementation("eager")
    our_config, params = from_transformers(theirs)
    ours, images = ViT(our_config), pixels(our_config)
    ours.load_state_dict(params)
    seen, expected = Everything(), hooked(theirs, theirs.vit.layers, VIT_OUT, VIT_IN)
    with torch.no_grad(), observe(ours, seen):
        ours(images)
    with torch.no_grad():
        output = theirs(pixel_values=images / 127.5 - 1, output_hidden_states=True, output_attentions=True)
    for region, x in expected.items():
        values = seen[region].transpose(1, 2).flatten(2) if region.name == "attn_v" else seen[region]
        # Nobody looks at the other tokens of the last layer, so it computes the first one's alone.
        same = x[:, :1] if values.shape[1] == 1 else x
        assert torch.allclose(values, same, atol=1e-5), region
    for number, x in enumerate(output.hidden_states[1:-1]):
        assert torch.allclose(seen[Region("resid_post_block", number)], x, atol=1e-5)
        assert torch.equal(seen[Region("class_token", number)], seen[Region("resid_post_block", number)][:, :1])
    assert seen[Region("resid_post_block", 2)].shape == (4, 1, 48)
    for number, p_BHTT in enumerate(output.attentions):
        expected_BHTT = p_BHTT[:, :, :1] if number == 2 else p_BHTT
        assert torch.allclose(seen.attentions[number].probabilities(), expected_BHTT, atol=1e-5)
    assert torch.allclose(seen[Region("logits")], output.logits, atol=1e-5)


def test_patches_are_seen_before_their_positions() -> None:
    model = build(SMALL)
    seen = activations(model, pixels(SMALL))
    positions = model.position_embd.weight
    assert torch.allclose(seen[Region("embd")], seen[Region("patch_embd")] + positions)


def test_documents_mask_the_attention_that_is_seen() -> None:
    model = taken_over(peer("tied"))
    documents_BT = torch.tensor([[0] * 15 + [1] * 25]).expand(3, -1)
    seen = Everything()
    with torch.no_grad(), observe(model, seen):
        model(IDS_BT, documents_BT)
    p_BHTS = seen.attentions[0].probabilities()
    assert torch.allclose(p_BHTS.sum(-1), torch.ones(3, 6, 40))
    assert not p_BHTS[:, :, 15:, :15].any() and not p_BHTS.triu(1).any()


def test_nothing_is_told_of_another_model_and_nothing_stays_behind() -> None:
    watched, other = taken_over(peer("tied")), taken_over(peer("tied"))
    seen = Everything()
    with observe(watched, seen):
        other(IDS_BT)
    watched(IDS_BT)
    assert not seen and not seen.attentions
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in watched.modules())


def test_a_pass_that_breaks_off_leaves_no_layer_at_work() -> None:
    class Broken(Observer):
        def activation(self, region: Region, x: Tensor) -> None:
            if region.name == "ffn_act":
                raise KeyboardInterrupt

    model, seen = taken_over(peer("tied")), Everything()
    with pytest.raises(KeyboardInterrupt), observe(model, Broken()):
        model(IDS_BT)
    with observe(model, seen):
        taken_over(peer("tied"))(IDS_BT)
    assert not seen.attentions


def test_only_what_is_asked_for_is_kept_and_no_logits_are_made_for_nothing() -> None:
    model = taken_over(peer("tied"))
    seen = activations(model, IDS_BT, regions=CKA_REGIONS)
    assert list(seen) == [Region(name, layer) for layer in (0, 1) for name in CKA_REGIONS]
    with pytest.raises(UsageError, match="no region 'ffn_output'; did you mean ffn_out"):
        activations(model, IDS_BT, regions=("ffn_output",))
