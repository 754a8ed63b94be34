"""The fused loss of a student against torch's own cross entropy and KL divergence on whole logits."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.kernels import backward, head_loss, ops
from linnet.kernels.distillation import Distillation, TeacherHead, TopTokens, top_tokens

N, D, E, V = 9, 6, 10, 37
TARGETS = torch.tensor([3, 36, -100, 0, 5, 5, -1, 20, 11])


def random(*shape: int, seed: int, size: float = 1.0) -> Tensor:
    return size * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def student() -> tuple[Tensor, Tensor]:
    return random(N, D, seed=0).requires_grad_(), random(V, D, seed=1).requires_grad_()


@pytest.fixture
def teacher() -> TeacherHead:
    return TeacherHead(random(N, E, seed=2, size=2.0), random(V + 3, E, seed=3))  # three rows of padding


def whole(student: tuple[Tensor, Tensor], teacher_logits: Tensor, T: float) -> tuple[Tensor, Tensor]:
    """Mean cross entropy and T² KL over the rows with a target, by torch."""
    kept = TARGETS >= 0
    logits = (student[0] @ student[1].T)[kept]
    divergence = F.kl_div(
        F.log_softmax(logits / T, -1),
        F.log_softmax(teacher_logits[kept] / T, -1),
        reduction="batchmean",
        log_target=True,
    )
    return F.cross_entropy(logits, TARGETS[kept]), T * T * divergence


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("rows", [128, 4])
def test_values_and_gradients_are_those_of_torchs_losses_on_whole_logits(
    student: tuple[Tensor, Tensor],
    teacher: TeacherHead,
    share: float,
    temperature: float,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(head_loss._ROWS, "cpu", rows)
    entropy, divergence = whole(student, teacher.hidden_NE @ teacher.head_VE[:V].T, temperature)
    ((1 - share) * entropy + share * divergence).backward()
    expected = [tensor.grad for tensor in student]
    for tensor in student:
        tensor.grad = None
    found = ops.distilled_head_loss(*student, TARGETS, Distillation(teacher, share, temperature))
    backward(found.objective)
    assert torch.allclose(found.cross_entropy, entropy, rtol=1e-5)
    assert torch.allclose(found.divergence, divergence, rtol=1e-5)
    assert torch.allclose(found.objective, (1 - share) * entropy + share * divergence, rtol=1e-5)
    for tensor, gradient in zip(student, expected, strict=True):
        assert tensor.grad is not None and gradient is not None
        assert torch.allclose(tensor.grad, gradient, atol=1e-6)


@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_of_the_likeliest_tokens_all_others_are_one_event(
    student: tuple[Tensor, Tensor], teacher: TeacherHead, temperature: float
) -> None:
    top = top_tokens(teacher, V, 5, temperature)
    assert torch.allclose(top.log_p_NK1.exp().sum(-1), torch.ones(N))
    kept = TARGETS >= 0
    logits = (student[0] @ student[1].T)[kept]
    q, ids = F.softmax(logits / temperature, -1), top.ids_NK[kept]
    events = torch.cat((q.gather(1, ids), 1 - q.gather(1, ids).sum(-1, keepdim=True)), 1)
    divergence = temperature**2 * F.kl_div(events.log(), top.log_p_NK1[kept], reduction="batchmean", log_target=True)
    (0.5 * F.cross_entropy(logits, TARGETS[kept]) + 0.5 * divergence).backward()
    expected = [tensor.grad for tensor in student]
    for tensor in student:
        tensor.grad = None
    found = ops.distilled_head_loss(*student, TARGETS, Distillation(top, 0.5, temperature))
    backward(found.objective)
    assert torch.allclose(found.divergence, divergence, rtol=1e-4)
    for tensor, gradient in zip(student, expected, strict=True):
        assert tensor.grad is not None and gradient is not None
        assert torch.allclose(tensor.grad, gradient, atol=1e-6)


def test_the_likeliest_tokens_never_say_more_than_the_whole_vocabulary_and_all_of_them_as_much(
    student: tuple[Tensor, Tensor], teacher: TeacherHead
) -> None:
    def divergence(said: TeacherHead | TopTokens) -> float:
        return float(ops.distilled_head_loss(*student, TARGETS, Distillation(said, 0.5, 1.0)).divergence)

    said = [divergence(top_tokens(teacher, V, count, 1.0)) for count in (1, 4, 16, V)]
    assert said == sorted(said)
    assert said[-1] == pytest.approx(divergence(teacher), rel=1e-5)


def test_who_agrees_with_the_teacher_has_nothing_to_learn_from_it(teacher: TeacherHead) -> None:
    student = (teacher.hidden_NE.clone().requires_grad_(), teacher.head_VE[:V].clone().requires_grad_())
    for said in (teacher, top_tokens(teacher, V, 4, 2.0)):
        found = ops.distilled_head_loss(*student, TARGETS, Distillation(said, 1.0, 2.0))
        backward(found.objective)
        assert float(found.divergence) == pytest.approx(0.0, abs=1e-6)
        assert student[0].grad is not None and float(student[0].grad.abs().max()) < 1e-6
