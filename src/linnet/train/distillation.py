"""A teacher beside the model that is trained: `DistillationLoss` adds the distance from it to the student's loss.

The teacher runs without gradients, in the precision of the run, by the same executor as the student: compiled, captured
and recorded with it. Or it does not run at all, where its likeliest tokens come with the batch (`linnet data teach`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels import Executor, eager
from linnet.kernels.distillation import Distillation, DistilledLoss, Teacher, TeacherHead, TopTokens, top_tokens
from linnet.kernels.head_loss import padded
from linnet.models import LanguageModel
from linnet.train.layer_sizes import HEAD_ROWS, LayerSizes


class LiveTeacher:
    """A model that is asked at every step.

    - `vocab`: the student's tokens; rows of the teacher's head behind them are padding.
    """

    def __init__(self, model: LanguageModel, vocab: int) -> None:
        self.model = model.requires_grad_(False).eval()
        self.vocab = vocab
        head = model.head_VD
        assert isinstance(head, Tensor), "a teacher is loaded whole"
        self._head_VE = padded(head.detach()[:vocab].to(model.compute_dtype))

    @torch.no_grad()
    def __call__(self, ids_BT: Tensor, documents_BT: Tensor | None = None, executor: Executor = eager) -> TeacherHead:
        """What it says of the tokens after these."""
        hidden_BTE = self.model.hidden(ids_BT, documents_BT, executor=executor)
        return TeacherHead(hidden_BTE.flatten(0, 1), self._head_VE)

    @torch.no_grad()
    def top(
        self, ids_BT: Tensor, documents_BT: Tensor | None, executor: Executor, count: int, temperature: float
    ) -> TopTokens:
        """The same by its likeliest tokens."""
        return top_tokens(self(ids_BT, documents_BT, executor), self.vocab, count, temperature)

    @property
    def weights(self) -> int:
        """Bytes of its weights."""
        return sum(parameter.nbytes for parameter in self.model.parameters())

    def activations(self, tokens: int, kind: str, *, fused: bool) -> tuple[int, int]:
        """Bytes of its own pass over so many tokens, and of what is left of that while the student's loss is made.

        `fused`: a kernel reads its logits beside the student's; else torch makes some copies of both in float32.
        """
        sizes, item = LayerSizes.of(self.model.config), self.model.compute_dtype.itemsize
        widest = max(3 * sizes.width + 2 * sizes.qkv, 2 * sizes.width + 2 * sizes.gate_up)
        logits = min(tokens, HEAD_ROWS.get(kind, 2048)) * self.vocab
        return tokens * item * widest, tokens * sizes.width * item + logits * (item if fused else item + 4 * 4)


class DistillationLoss:
    """The loss of a student, in the place of the model's own: as `Step` calls it.

    - `teacher`: None where the batches bring what it said.
    - `share`: how much it counts; `temperature`: at which its probabilities and the student's are compared.
    - `top`: of its likeliest tokens, and of all others as one; None: of the whole vocabulary.
    """

    def __init__(
        self, model: Any, teacher: LiveTeacher | None, share: float, temperature: float = 1.0, top: int | None = None
    ) -> None:
        self._model, self._teacher = model, teacher
        self._share, self._temperature, self._top = share, temperature, top

    def __call__(
        self,
        ids_BT: Tensor,
        targets_BT: Tensor,
        documents_BT: Tensor | None,
        *top: Tensor,
        divisor: Tensor,
        executor: Executor,
    ) -> DistilledLoss:
        """The objective with its parts, for these rows."""
        teacher = self._teacher_output(ids_BT, documents_BT, executor, *top)
        distillation = Distillation(teacher, self._share, self._temperature)
        loss: DistilledLoss = self._model.distilled_loss(
            ids_BT, targets_BT, documents_BT, distillation, divisor=divisor, executor=executor
        )
        return loss

    def _teacher_output(self, ids_BT: Tensor, documents_BT: Tensor | None, executor: Executor, *top: Tensor) -> Teacher:
        if self._teacher is None:
            ids_BTK, log_p_BTK1 = top
            # Rounded to 16 bits, the probabilities do not quite add up to 1.
            log_p_NK1 = F.log_softmax(log_p_BTK1.flatten(0, 1).float(), -1)
            return TopTokens(ids_BTK.flatten(0, 1), log_p_NK1)
        if self._top is None:
            return self._teacher(ids_BT, documents_BT, executor)
        return self._teacher.top(ids_BT, documents_BT, executor, self._top, self._temperature)
