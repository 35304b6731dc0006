"""The training objective of knowledge distillation (Hinton et al., 2015).

    labels     L = T² · KL(p_T^teacher ‖ p_T^student),     p_T = softmax(z / T)
    numbers    L = (ŷ_teacher − ŷ_student)²
    labelled   L + λ · (−log p(y | x)), or (y − ŷ)²        for examples that also have a label
    hidden     L + β · mean over l of ‖W h_l − h'_m(l)‖² / D',    m(l) = round(l · L' / L)

T² keeps the gradient as large as at T = 1, where a logit's gradient is p_student − p_teacher. A higher T shows which
wrong labels the teacher considers more likely than others. W is trained if the widths D and D' differ; else there is
none.

Targets (…, 1 + Y) hold a label's number or a value, then the teacher's Y logits; NaN where they are unknown.

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
from ensue.train.label_objectives import LabelLoss, next_loss
from ensue.train.loss_reduction import LOCAL, LossAndState, LossReduction

STUDENT_PROJECTION = "onto_teacher"
"""The attribute under which a student holds W during training."""


@dataclass(frozen=True)
class DistillationLoss:
    """The mean loss of examples that the teacher has labelled."""

    label: LabelLoss
    """The loss of labels, of kind label or number."""
    temperature: float = 2.0
    weight: float = 0.0
    """λ: weight of the loss of labels."""
    hidden: float = 0.0
    """β: weight of the loss of hidden states."""
    teacher: nn.Module | None = None
    """Needed only to match hidden states."""

    def __call__(self, model: Any, batch: Any, state: State | None, reduction: LossReduction = LOCAL) -> LossAndState:
        """Return the mean over targets that are not ignored."""
        inputs = (batch.tokens, batch.segments, batch.lengths)
        answer = model(*inputs, layers=True) if self.hidden else model(*inputs)
        loss = self.of(answer.logits, batch.targets, reduction)
        if self.hidden:
            assert self.teacher is not None
            with torch.no_grad():
                teacher_layers = self.teacher(*inputs, layers=True).layers
            projection = getattr(model, STUDENT_PROJECTION, None)
            distance = hidden_loss(answer.layers, teacher_layers, batch.lengths, projection)
            loss = loss + self.hidden * reduction.scale_mean(distance, batch.lengths.sum())
        if self.label.language:
            loss = loss + self.label.language * next_loss(model, answer.hidden, batch, reduction)
        return loss, None

    def of(self, logits: Tensor, targets: Tensor, reduction: LossReduction = LOCAL) -> Tensor:
        """Return the mean loss of given logits (…, Y)."""
        counted = ~targets[..., 1].isnan()
        z, labels, soft = logits[counted], targets[counted][:, 0], targets[counted][:, 1:]
        count = max(1, len(z))
        if self.label.kind == "number":
            loss = F.mse_loss(z, soft, reduction="sum") / count
        else:
            loss = soft_loss(z, soft, self.temperature).sum() / count
        loss = reduction.scale_mean(loss, len(z))
        known = ~labels.isnan()
        if self.weight and reduction.total(known.sum()):
            true = labels[known] if self.label.kind == "number" else labels[known].long()
            share = reduction.total(known.sum()) / reduction.total(len(z))
            label_loss = reduction.scale_mean(self.label.of(z[known], true), self.label.weight_of(true))
            loss = loss + self.weight * share * label_loss
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
    student: Sequence[Tensor], teacher: Sequence[Tensor], lengths: Tensor, projection: nn.Module | None = None
) -> Tensor:
    """Return the mean squared distance of h_0 … h_L (B, T, D) to the matching states of the teacher."""
    real = torch.arange(student[0].shape[1], device=lengths.device) < lengths[:, None]
    distances = []
    for h, layer in zip(student, matched_layers(len(student) - 1, len(teacher) - 1), strict=True):
        projected = h[real] if projection is None else projection(h[real])
        distances.append(F.mse_loss(projected, teacher[layer][real].to(projected.dtype)))
    return torch.stack(distances).mean()


def matched_layers(layers: int, teacher_layers: int) -> list[int]:
    """Return the teacher's layer that each of h_0 … h_L matches, spread evenly from the first to the last.

    >>> matched_layers(2, 6), matched_layers(3, 4)
    ([0, 3, 6], [0, 1, 3, 4])
    """
    return [(2 * layer * teacher_layers + layers) // (2 * layers) for layer in range(layers + 1)]
