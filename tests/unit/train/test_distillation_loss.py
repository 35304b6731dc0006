import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from ensue.data.labelled_rows import LabelledRows, make_batch
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.models.labelled import HeadConfig, Labelled
from ensue.train.distillation import STUDENT_PROJECTION, DistillationLoss, hidden_loss, matched_layers, soft_loss
from ensue.train.label_objectives import LabelLoss

NAN = float("nan")


def wanted(soft, labels=None):
    """Targets as rows have them: a label's number, or NaN, before the teacher's logits."""
    first = torch.full((len(soft), 1), NAN) if labels is None else torch.tensor(labels)[:, None]
    return torch.cat([first, soft], dim=1)


def test_the_soft_loss_is_the_divergence_from_the_teacher_by_hand():
    teacher, student = [2.0, 0.0], [0.0, 1.0]
    p = 1 / (1 + math.exp(-2.0 / 2))  # softmax at T = 2
    q = 1 / (1 + math.exp(1.0 / 2))
    expected = 4 * (p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q)))
    found = soft_loss(torch.tensor([student]), torch.tensor([teacher]), 2.0)
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_at_temperature_one_the_gradient_is_the_difference_of_probabilities():
    z, teacher = torch.randn(5, 4, requires_grad=True), torch.randn(5, 4)
    DistillationLoss(LabelLoss(), temperature=1.0).of(z, wanted(teacher)).backward()
    difference = (z.softmax(-1) - teacher.softmax(-1)) / 5
    torch.testing.assert_close(z.grad, difference.detach())


def test_the_squared_temperature_keeps_the_size_of_gradients():
    """At high T the gradient tends to the difference of centred logits over Y, whatever T is (Hinton et al., eq. 4)."""
    z, teacher = torch.randn(1, 3, requires_grad=True), torch.randn(1, 3)
    soft_loss(z, teacher, 1000.0).sum().backward()
    centred = (z - z.mean()) - (teacher - teacher.mean())
    torch.testing.assert_close(z.grad, centred.detach() / 3, atol=2e-3, rtol=1e-2)


def test_adding_a_constant_to_the_teachers_logits_changes_nothing():
    z, teacher = torch.randn(4, 3), torch.randn(4, 3)
    torch.testing.assert_close(soft_loss(z, teacher, 3.0), soft_loss(z, teacher + 7, 3.0))


def test_numbers_are_learnt_by_their_squared_difference():
    z, teacher = torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [2.5]])
    assert DistillationLoss(LabelLoss("number")).of(z, wanted(teacher)).item() == pytest.approx((4 + 0.25) / 2)
    loss = DistillationLoss(LabelLoss("number"), weight=0.5).of(z, wanted(teacher, [NAN, 4.0]))
    assert loss.item() == pytest.approx((4 + 0.25 + 0.5 * 4) / 2)


def test_labelled_examples_add_the_loss_of_their_label():
    z, teacher = torch.randn(4, 3), torch.randn(4, 3)
    targets = wanted(teacher, [NAN, 2.0, NAN, 0.0])
    plain, with_labels = (DistillationLoss(LabelLoss(), 2.0, weight).of(z, targets) for weight in (0.0, 0.5))
    usual = -z.log_softmax(-1)[[1, 3], [2, 0]].sum()
    torch.testing.assert_close(with_labels, plain + 0.5 * usual / 4)


def test_ignored_tokens_and_padding_do_not_count():
    soft = np.full((5, 3), np.nan, dtype=np.float32)
    soft[[1, 3], 1:] = [[1.0, -1.0], [0.5, 2.0]]
    zeros = np.zeros(5, dtype=np.int32)
    rows = LabelledRows(zeros, zeros, np.array([0, 3, 5]), soft, per_token=True)
    batch = make_batch(rows, np.array([0, 1]))
    assert batch.targets.shape == (2, 3, 3)
    z = torch.randn(2, 3, 2, requires_grad=True)
    loss = DistillationLoss(LabelLoss(), 2.0).of(z, batch.targets)
    asked = torch.stack([z[0, 1], z[1, 0]])
    torch.testing.assert_close(loss, soft_loss(asked, torch.tensor([[1.0, -1.0], [0.5, 2.0]]), 2.0).mean())
    loss.backward()
    assert torch.isfinite(z.grad).all()
    assert z.grad[0, 2].eq(0).all() and z.grad[1, 2].eq(0).all()


def test_layers_match_the_teachers_evenly():
    assert matched_layers(6, 12) == [0, 2, 4, 6, 8, 10, 12]
    assert matched_layers(1, 6) == [0, 6]
    assert matched_layers(4, 4) == [0, 1, 2, 3, 4]


def test_hidden_states_are_matched_at_real_tokens_only():
    lengths = torch.tensor([2, 1])
    student = [torch.zeros(2, 2, 3), torch.ones(2, 2, 3)]
    teacher = [torch.zeros(2, 2, 3) for _ in range(3)]
    teacher[1] += 50  # stands for none of the student's
    student[0][1, 1] = 9.0  # padding
    assert hidden_loss(student, teacher, lengths).item() == pytest.approx((0 + 1) / 2)
    onto = nn.Linear(3, 5, bias=False)
    wide = [torch.zeros(2, 2, 5) for _ in range(3)]
    expected = onto.weight.sum(1).square().mean() / 2
    torch.testing.assert_close(hidden_loss(student, wide, lengths, onto), expected)


def encoder(layers, hidden):
    config = EncoderConfig(vocabulary=20, layers=layers, heads=2, hidden=hidden, context=8)
    return Labelled(Encoder(config), HeadConfig(outputs=2))


def test_matching_hidden_states_teaches_the_student_and_leaves_the_teacher_alone():
    teacher, student = encoder(4, 12).eval(), encoder(2, 8)
    student.add_module(STUDENT_PROJECTION, nn.Linear(8, 12, bias=False))
    tokens, lengths = torch.randint(20, (3, 6)), torch.tensor([6, 4, 2])
    batch = SimpleNamespace(tokens=tokens, segments=None, lengths=lengths, targets=wanted(torch.randn(3, 2)))
    loss, state = DistillationLoss(LabelLoss(), hidden=1.0, teacher=teacher)(student, batch, None)
    assert state is None
    loss.backward()
    assert all(p.grad is None for p in teacher.parameters())
    assert getattr(student, STUDENT_PROJECTION).weight.grad.abs().sum() > 0
    assert all(p.grad is not None for p in student.body.blocks.parameters())
