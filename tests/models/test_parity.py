"""Our models against `transformers` on the same weights: logits, loss and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers

from linnet.errors import UsageError
from linnet.models import LanguageModel, from_transformers
from linnet.models.initial import allocate
from linnet.models.loading import config_from_transformers, params_from_transformers

LLAMA = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 6,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LLAMAS: dict[str, dict[str, Any]] = {
    "tied": {},
    "untied": {"tie_word_embeddings": False},
    "grouped": {"num_key_value_heads": 2},
    "biases": {"attention_bias": True, "mlp_bias": True},
    "head size free": {"head_dim": 16, "num_key_value_heads": 3},
    "linear rope": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
    "llama3 rope": {"rope_parameters": LLAMA3},
}
IDS_BT = torch.randint(0, 97, (3, 40), generator=torch.Generator().manual_seed(1))


def peer(kind: str) -> Any:
    """A model of transformers with random weights, norms and biases included."""
    torch.manual_seed(0)
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(vocab_size=97, n_embd=48, n_head=6, n_layer=2, n_positions=64)
        model = transformers.GPT2LMHeadModel(config)
    else:
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA | LLAMAS[kind]))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name or "ln_" in name:
                parameter.normal_(1.0, 0.2)
            else:
                parameter.normal_(0.0, 0.1)
    return model.eval()


def taken_over(theirs: Any) -> LanguageModel:
    config, params = from_transformers(theirs)
    model = allocate(config)
    model.load_state_dict(params)
    return model


@pytest.mark.parametrize("kind", [*LLAMAS, "gpt2"])
def test_logits_loss_and_gradients_equal_those_of_transformers(kind: str) -> None:
    theirs = peer(kind)
    ours = taken_over(theirs)
    output = theirs(input_ids=IDS_BT, labels=IDS_BT)
    assert torch.allclose(ours(IDS_BT), output.logits, atol=1e-5, rtol=0)

    targets_BT = torch.cat((IDS_BT[:, 1:], torch.full((3, 1), -1)), 1)
    loss = ours.loss(IDS_BT, targets_BT)
    assert loss.item() == pytest.approx(output.loss.item(), abs=1e-5)

    loss.backward()
    output.loss.backward()
    gradients = {name: p.grad for name, p in theirs.named_parameters()}
    gradients["lm_head.weight"] = theirs.lm_head.weight.grad
    expected = params_from_transformers(ours.config, gradients)
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(parameter.grad, expected[name], atol=1e-5, rtol=1e-4), name


def test_a_transformers_model_that_cannot_be_taken_over_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"type 'mistral' cannot be taken over: only llama, gpt2, .* and vit can"):
        config_from_transformers(transformers.MistralConfig())
    with pytest.raises(UsageError, match="hidden_act 'gelu' cannot be taken over: only silu"):
        config_from_transformers(transformers.LlamaConfig(hidden_act="gelu"))
    yarn = {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4, "original_max_position_embeddings": 32}
    with pytest.raises(UsageError, match="rope scaling 'yarn' cannot be taken over"):
        config_from_transformers(transformers.LlamaConfig(**LLAMA | {"rope_parameters": yarn}))
