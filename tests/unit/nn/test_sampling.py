"""Words against a few that are drawn: what is learnt is what the whole vocabulary would teach."""

import pytest
import torch

from ensue.nn.sampling import draw_log_uniform, log_uniform, negative_sampling, sampled_cross_entropy


def test_draws_follow_the_distribution_they_are_said_to():
    torch.manual_seed(0)
    q = log_uniform(9)
    assert float(q.sum()) == pytest.approx(1)
    found = torch.bincount(draw_log_uniform(20_000, 9), minlength=9) / 20_000
    assert (found - q).abs().max() < 0.01


def test_where_every_word_is_drawn_it_is_the_exact_softmax():
    torch.manual_seed(0)
    hidden, weight, bias = torch.randn(5, 4), torch.randn(7, 4), torch.randn(7)
    targets = torch.tensor([0, 6, 2, 2, 5])
    exact = torch.nn.functional.cross_entropy(hidden @ weight.T + bias, targets)
    torch.testing.assert_close(sampled_cross_entropy(hidden, weight, bias, targets, 500), exact, atol=1e-4, rtol=0)


def test_few_draws_teach_the_true_probabilities():
    torch.manual_seed(0)
    p = torch.rand(30) ** 3
    p /= p.sum()
    bias = torch.zeros(30, requires_grad=True)
    optimiser = torch.optim.Adam([bias], lr=0.05)
    for step in range(300):
        optimiser.param_groups[0]["lr"] = 0.05 * (1 - step / 300)
        targets = torch.multinomial(p, 300, replacement=True)
        loss = sampled_cross_entropy(torch.zeros(300, 1), torch.zeros(30, 1), bias, targets, 8)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (bias.detach().softmax(0) - p).abs().max() < 0.02


def test_negative_sampling_is_its_equation_and_leaves_out_the_word_itself():
    c, u = torch.tensor([[1.0, 2.0]]), torch.tensor([[0.5, 0.0], [0.0, 1.0], [1.0, 1.0]])
    found = negative_sampling(c, u, torch.tensor([2]), torch.tensor([[0, 1, 2]]))
    s = torch.sigmoid(torch.tensor([3.0, -0.5, -2.0]))
    torch.testing.assert_close(found, -s.log().sum())
