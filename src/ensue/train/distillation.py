"""What distilling asks of a student: to answer as its teacher does (Hinton et al., 2015).

    labels     L = T² · KL(p_T^teacher ‖ p_T^student),     p_T = softmax(z / T)
    numbers    L = (ŷ_teacher − ŷ_student)²
    labelled   L + λ · (−log p(y | x)), or (y − ŷ)²        of those examples that have a label too
    hidden     L + β · mean over l of ‖W h_l − h'_m(l)‖² / D',    m(l) = round(l · L' / L)

T² keeps the gradient as large as it is at T = 1, where that of a logit is p_student − p_teacher. A warm T shows which
wrong labels the teacher finds likelier than others. W is learnt where the widths D and D' differ; else there is none.

What is wanted (…, 1 + Y) is a label's number or a value, and then the teacher's Y logits; NaN where nothing is known.

Legend: B rows, T tokens, Y labels, L layers of the student, L' of the teacher.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ensue.nn.state import State
from ensue.train.label_objectives import Label, next_loss
from ensue.train.loss_reduction import ALONE, Pool

ONTO = "onto_teacher"
"""The name under which a student holds W while it learns."""


@dataclass(frozen=True)
class Distil:
    """The mean loss of what the teacher was asked about."""

    label: Label
    """What labels ask: label or number, and what else the usual training asks for."""
    temperature: float = 2.0
    weight: float = 0.0
    """λ, of the loss of labels."""
    hidden: float = 0.0
    """β, of the loss of hidden states."""
    teacher: nn.Module | None = None
    """Whose hidden states are matched; where they are not, nobody is asked while the student learns."""

    def __call__(self, model: nn.Module, batch: Any, state: State | None, pool: Pool = ALONE) -> tuple[Tensor, None]:
        """The mean over what is asked; no state is carried on."""
        given = (batch.tokens, batch.segments, batch.lengths)
        answer = model(*given, layers=True) if self.hidden else model(*given)
        loss = self.of(answer.logits, batch.targets, pool)
        if self.hidden:
            assert self.teacher is not None
            with torch.no_grad():
                taught = self.teacher(*given, layers=True).layers
            onto = getattr(model, ONTO, None)
            apart = hidden_loss(answer.layers, taught, batch.lengths, onto)
            loss = loss + self.hidden * pool.share(apart, batch.lengths.sum())
        if self.label.language:
            loss = loss + self.label.language * next_loss(model, answer.hidden, batch, pool)
        return loss, None

    def of(self, logits: Tensor, targets: Tensor, pool: Pool = ALONE) -> Tensor:
        """The mean loss of given answers (…, Y); an example with a label counts λ of the usual loss more."""
        asked = ~targets[..., 1].isnan()
        z, wanted, soft = logits[asked], targets[asked][:, 0], targets[asked][:, 1:]
        count = max(1, len(z))
        if self.label.kind == "number":
            loss = F.mse_loss(z, soft, reduction="sum") / count
        else:
            loss = soft_loss(z, soft, self.temperature).sum() / count
        loss = pool.share(loss, len(z))
        known = ~wanted.isnan()
        if self.weight and pool.total(known.sum()):
            said = wanted[known] if self.label.kind == "number" else wanted[known].long()
            share = pool.total(known.sum()) / pool.total(len(z))
            loss = loss + self.weight * share * pool.share(self.label.of(z[known], said), self.label.weight_of(said))
        return loss


def soft_loss(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T² · KL(softmax(teacher / T) ‖ softmax(student / T)) of logits (N, Y) → (N,).

    >>> soft_loss(torch.tensor([[1.0, 2.0]]), torch.tensor([[3.0, 4.0]]), 2.0).tolist()  # the same distribution
    [0.0]
    """
    p = F.log_softmax(teacher.float() / temperature, dim=-1)
    q = F.log_softmax(student.float() / temperature, dim=-1)
    return temperature**2 * F.kl_div(q, p, log_target=True, reduction="none").sum(-1)


def hidden_loss(
    student: Sequence[Tensor], teacher: Sequence[Tensor], lengths: Tensor, onto: nn.Module | None = None
) -> Tensor:
    """The mean squared difference of h_0 … h_L (B, T, D) and the teacher's states they stand for, at real tokens."""
    real = torch.arange(student[0].shape[1], device=lengths.device) < lengths[:, None]
    parts = []
    for h, place in zip(student, matching(len(student) - 1, len(teacher) - 1), strict=True):
        own = h[real] if onto is None else onto(h[real])
        parts.append(F.mse_loss(own, teacher[place][real].to(own.dtype)))
    return torch.stack(parts).mean()


def matching(layers: int, taught: int) -> list[int]:
    """Which of a teacher's h_0 … h_L' each of h_0 … h_L stands for: the first for the first, the last for the last.

    >>> matching(2, 6), matching(3, 4)
    ([0, 3, 6], [0, 1, 3, 4])
    """
    return [(2 * place * taught + layers) // (2 * layers) for place in range(layers + 1)]
