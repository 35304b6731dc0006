"""Words against a few that are drawn: what is learnt is what the whole vocabulary would teach."""

from itertools import product

import pytest
import torch

from ensue.nn.sampling import chances, log_uniform, negative_sampling, sampled_cross_entropy


def test_words_are_drawn_by_their_rank():
    q, p = log_uniform(9), chances(4, 9)
    assert float(q.sum()) == pytest.approx(1) and (q.diff() < 0).all()
    torch.testing.assert_close(p, 1 - (1 - q) ** 4)


def test_where_every_word_is_drawn_it_is_the_exact_softmax():
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(5, 4), torch.randn(7, 4), torch.randn(7)
    targets = torch.tensor([0, 6, 2, 2, 5])
    exact = torch.nn.functional.cross_entropy(hidden @ weight.T + bias, targets)
    torch.testing.assert_close(sampled_cross_entropy(hidden, weight, bias, targets, 500), exact, atol=1e-4, rtol=0)


def test_its_best_weights_are_those_of_the_exact_softmax(monkeypatch):
    """At b = log P the gradient is zero in expectation, which is worked out over all draws that can be."""
    targets = torch.tensor([0] * 2 + [1] * 4 + [2] + [3] * 3)
    bias = torch.bincount(targets).double().div(10).log().requires_grad_()
    chance, whole = chances(2, 4), torch.zeros(4, dtype=torch.double)
    for drawn in product((0.0, 1.0), repeat=4):
        mask = torch.tensor(drawn, dtype=torch.double)
        monkeypatch.setattr(torch, "rand_like", lambda like, mask=mask: 1 - mask)  # below its chance where it is drawn
        none = torch.zeros(10, 1, dtype=torch.double)
        loss = sampled_cross_entropy(none, torch.zeros(4, 1, dtype=torch.double), bias, targets, 2)
        (gradient,) = torch.autograd.grad(loss, bias)
        whole += torch.where(mask > 0, chance, 1 - chance).prod() * gradient
    torch.testing.assert_close(whole, torch.zeros(4, dtype=torch.double), atol=1e-12, rtol=0)


def test_negative_sampling_is_its_equation_and_leaves_out_the_word_itself():
    c, u = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = negative_sampling(c, u, torch.tensor([2]), torch.tensor([[0, 1, 2]]))
    s = torch.sigmoid(torch.tensor([3.0, -0.5, -2.0]))
    torch.testing.assert_close(found, -s.log().sum())
