"""`Transformer`: what all models have in common; `LanguageModel`: what those of text have, from embedding to loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linnet.architectures.description import Config
from linnet.architectures.registry import AnyConfig
from linnet.errors import UsageError
from linnet.kernels import Executor, eager, ops
from linnet.kernels.distillation import Distillation, DistilledLoss
from linnet.kernels.packed import PackedMatrix
from linnet.models.cache import KVCache, Span
from linnet.models.dropout import ResidualDropout
from linnet.models.layers import Embedding, Linear

if TYPE_CHECKING:
    from linnet.models.adapters import Adapter
    from linnet.models.lens import Lens


class Transformer(nn.Module):
    """A model whose `state_dict` has exactly the names of `linnet.architectures`.

    Parameters are float32. With `set_compute_dtype(torch.bfloat16)` they are cast where they are used; norms, softmax
    and loss stay in float32.
    """

    blocks: nn.ModuleList

    def __init__(self, config: AnyConfig) -> None:
        super().__init__()
        self.config = config
        self.compute_dtype = torch.float32

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def params(self) -> dict[str, Tensor]:
        """Every parameter by its name in `linnet.architectures`: what `linnet.gguf.write` takes (and folds a lens)."""
        return {name: tensor.detach() for name, tensor in self.state_dict().items()}

    def set_compute_dtype(self, dtype: torch.dtype) -> None:
        """The dtype of activations and matmuls; the parameters stay in float32."""
        self.compute_dtype = dtype


class DecoderBlock(nn.Module):
    """What the layers of language models share: attention, to the keys and values of a cache where there is one."""

    dropout: float = 0.0  # the share that is dropped of what attention and feed-forward add, in training

    def __init__(self, layer: int) -> None:
        super().__init__()
        self.layer = layer

    def attention(
        self, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor, mask_TS: Tensor | None, span: Span | None
    ) -> Tensor:
        """[B, T, H·D]: causal attention, or by the mask; K divides H (grouped queries)."""
        if span is None:
            k_BKSD, v_BKSD = k_BTKD.transpose(1, 2), v_BTKD.transpose(1, 2)
        else:
            k_BKSD, v_BKSD = span.put(self.layer, k_BTKD, v_BTKD)
        return ops.attend(q_BTHD.transpose(1, 2), k_BKSD, v_BKSD, mask_TS).transpose(1, 2).flatten(2)


class LanguageModel(Transformer):
    """Token ids in, logits or a loss out."""

    config: Config
    token_embd: Embedding
    output_norm: nn.Module
    output: Linear | None

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.lens: Lens | None = None  # between an embedding of another width and the model; see `put_lens`
        self.adapter: Adapter | None = None  # what is trained of a model that is frozen; see `add_adapter`
        self.dropout: ResidualDropout | None = None  # see `use_dropout`

    def use_dropout(self, share: float, seed: int = 0) -> None:
        """Drop a share of the residual stream in training: of the embeddings, and of what each layer adds twice.

        `begin_step` says which step comes: its masks are a hash of that. Nothing is dropped without gradients
        (`torch.no_grad`) or after `eval()`. An adapter has a dropout of its own.
        """
        if self.adapter is not None:
            raise UsageError("`dropout` of a model does not go with an adapter, which has its own: leave one out")
        dropout = ResidualDropout(share, seed, self.device)
        self.dropout = dropout if share else None
        for block in self.blocks:
            block.dropout = share  # type: ignore[assignment]

    def begin_step(self, step: int) -> None:
        """The training step that comes, counted from 0, by which dropout's masks are chosen."""
        dropping = self.dropout if self.adapter is None else self.adapter
        if dropping is not None:
            dropping.begin_step(step)

    def _mask_keys(self, ids_BT: Tensor) -> Tensor | None:
        """What the masks of these rows are made from; None where nothing is dropped."""
        if self.adapter is not None:
            return self.adapter.mask_keys(ids_BT)
        drops = self.dropout is not None and self.training and torch.is_grad_enabled()
        return self.dropout.row_keys(ids_BT) if drops and self.dropout is not None else None

    def positions(self, T: int, span: Span | None) -> tuple[Tensor | None, tuple[Tensor, ...]]:
        """What is added to the embeddings of T tokens, [T, d_model], and what their positions give every block."""
        raise NotImplementedError

    def reserve(self, positions: int) -> None:
        """Prepare what the model computes once for sequences of `positions` tokens: nothing, with learned positions."""

    def embed(self, ids_BT: Tensor, executor: Executor = eager, position_TD: Tensor | None = None) -> Tensor:
        """[B, T, d_model]: the row of each token, through the lens where there is one, and its position's."""
        if self.lens is None:
            x_BTD: Tensor = executor(self.token_embd, ids_BT, self.compute_dtype, position_TD)
            return x_BTD
        x_BTD = executor(self.lens, executor(self.token_embd, ids_BT, self.compute_dtype))
        return x_BTD if position_TD is None else x_BTD + position_TD.to(x_BTD.dtype)

    def hidden(
        self,
        ids_BT: Tensor,
        documents_BT: Tensor | None = None,
        cache: KVCache | None = None,
        executor: Executor = eager,
    ) -> Tensor:
        """[B, T, d_model]: what the output head reads, in the compute dtype."""
        T = ids_BT.shape[1]
        if self.config.ctx < T:
            raise UsageError(f"the sequence has {T} tokens and the model's context {self.config.ctx}: shorten it")
        assert cache is None or documents_BT is None, "a cache holds one document"
        span = None if cache is None else cache.span(T)
        mask_TS = None if span is None else span.mask_TS
        if documents_BT is not None:
            by_number = ops.attends_by_documents(self.config.head_size, self.compute_dtype, ids_BT.device, executor)
            mask_TS = documents_BT if by_number else document_mask(documents_BT)
        position_TD, rotary = self.positions(T, span)
        mask_keys_B = self._mask_keys(ids_BT)
        x_BTD = self.embed(ids_BT, executor, position_TD)
        if self.dropout is not None and mask_keys_B is not None:
            x_BTD = executor(self.dropout, x_BTD, mask_keys_B)
        x = ops.residual(x_BTD, executor, mask_keys_B)
        for block in self.blocks:
            x = executor(block, x, *rotary, mask_TS, span)
        if cache is not None:
            cache.advance(T)
        hidden_BTD: Tensor = executor(self.output_norm, x.total())
        return hidden_BTD

    def forward(self, ids_BT: Tensor, documents_BT: Tensor | None = None, cache: KVCache | None = None) -> Tensor:
        """Logits [B, T, V] in float32. With a cache the ids come after those it holds, and are added to it."""
        return self.logits(self.hidden(ids_BT, documents_BT, cache))

    def logits(self, hidden_BTD: Tensor) -> Tensor:
        """The output head, in float32."""
        return self.head(hidden_BTD).float()

    def head(self, hidden_BTD: Tensor) -> Tensor:
        """[B, T, V]: hidden states by the output head, in their dtype."""
        hidden_BTD, head_VD = self._read_by_head(hidden_BTD)
        if isinstance(head_VD, PackedMatrix):
            return ops.packed_linear(hidden_BTD, head_VD)
        return F.linear(hidden_BTD, head_VD.to(hidden_BTD.dtype))

    def loss(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        documents_BT: Tensor | None = None,
        *,
        divisor: Tensor | None = None,
        executor: Executor = eager,
    ) -> Tensor:
        """Mean cross entropy in nats over the targets that are not negative.

        `documents_BT` numbers the documents of a row: a token sees those before it with the same number.
        Positions go on through the row. `divisor` replaces the number of targets in the mean. `executor` runs the
        layers: eagerly, or compiled.
        """
        hidden_ND, head_VD = self._rows_and_head(ids_BT, documents_BT, executor)
        return ops.head_loss(hidden_ND, head_VD, targets_BT.flatten(), divisor, executor)

    def target_log_probs(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        documents_BT: Tensor | None = None,
        *,
        executor: Executor = eager,
    ) -> Tensor:
        """[B, T]: log p of each target in float32, 0 where it is negative; as `loss` otherwise."""
        hidden_ND, head_VD = self._rows_and_head(ids_BT, documents_BT, executor)
        return ops.target_log_probs(hidden_ND, head_VD, targets_BT.flatten()).view_as(ids_BT)

    def distilled_loss(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        documents_BT: Tensor | None,
        distillation: Distillation,
        *,
        divisor: Tensor | None = None,
        executor: Executor = eager,
    ) -> DistilledLoss:
        """The loss of a student: cross entropy as in `loss`, and the divergence from its teacher."""
        hidden_ND, head_VD = self._rows_and_head(ids_BT, documents_BT, executor)
        targets_N = targets_BT.flatten()
        return ops.distilled_head_loss(hidden_ND, head_VD, targets_N, distillation, divisor, executor)

    def _rows_and_head(
        self, ids_BT: Tensor, documents_BT: Tensor | None, executor: Executor
    ) -> tuple[Tensor, Tensor | PackedMatrix]:
        """[B·T, D]: what the head reads of every token, and the head."""
        return self._read_by_head(self.hidden(ids_BT, documents_BT, executor=executor).flatten(0, 1))

    def _read_by_head(self, hidden: Tensor) -> tuple[Tensor, Tensor | PackedMatrix]:
        """What the head reads, and the head: of an adapted one both with some columns more."""
        return (hidden, self.head_VD) if self.adapter is None else self.adapter.read_by_head(hidden, self.head_VD)

    @property
    def plain_head_VD(self) -> Tensor | None:  # noqa: N802
        """The output head, where logits are hidden states times it and nothing more; None: it is packed or adapted."""
        head_VD = self.head_VD
        adapted = self.adapter is not None and self.adapter.changes_head
        return head_VD if isinstance(head_VD, Tensor) and not adapted else None

    @property
    def head_VD(self) -> Tensor | PackedMatrix:  # noqa: N802 (the shape is part of a tensor's name)
        """The output head: the embedding itself where they are tied."""
        return self.token_embd.weight if self.output is None else self.output.weight

    def n_params(self) -> int:
        """How many numbers are trained; a tied head counts once."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def flops_per_token(self, T: int) -> float:
        """Of forward and backward, in sequences of T tokens: 6N + 12·L·d·T.

        N is every trained parameter but learned positions; d is the width of attention (n_heads × head size). A weight
        that is multiplied and not trained counts 4 instead of 6.
        Attention is counted whole, not halved for causality: nanoGPT's convention, so that figures compare.
        """
        config = self.config
        trained = ((name, p) for name, p in self.named_parameters() if p.requires_grad)
        N = sum(p.numel() for name, p in trained if name != "position_embd.weight")
        frozen = 0 if self.adapter is None else self.adapter.frozen_weights  # whose gradients are not made
        return 6.0 * N + 4.0 * frozen + 12.0 * config.n_layers * config.n_heads * config.head_size * T


def document_mask(documents_BT: Tensor) -> Tensor:
    """[B, 1, T, T]: a token sees the tokens before it that have the same document number."""
    T = documents_BT.shape[1]
    causal_TT = torch.ones(T, T, dtype=torch.bool, device=documents_BT.device).tril()
    return ((documents_BT[:, :, None] == documents_BT[:, None, :]) & causal_TT)[:, None]
