import math

import pytest
import torch

from ensue.core.errors import InputError
from ensue.search.length_penalty import LENGTH_PENALTIES, Coverage, LengthPenalty, coverage_penalty


def test_each_penalty_is_its_equation():
    assert LengthPenalty("none", 0.6).score(-6.0, 3) == -6
    assert LengthPenalty("mean", 0.6).score(-6.0, 3) == -2
    assert LengthPenalty("gnmt", 0.6).score(-6.0, 7) == pytest.approx(-6 / 2**0.6)
    assert LengthPenalty("gnmt", 0.0).score(-6.0, 7) == -6  # α = 0 is none
    assert LengthPenalty("gnmt", 0.6).score(-6.0, 1) == -6  # one token is divided by one


@pytest.mark.parametrize("name", LENGTH_PENALTIES)
def test_no_continuation_scores_more_than_the_bound(name):
    penalty, log_prob, longest = LengthPenalty(name, 0.8), -3.0, 9
    for t in range(4, longest + 1):
        for more in (0.0, -0.1, -2.0):
            assert penalty.score(log_prob + more, t) <= penalty.bound(log_prob, longest)
    best = max(penalty.score(log_prob, t) for t in range(4, longest + 1))
    assert best == pytest.approx(penalty.bound(log_prob, longest))  # and it can be reached


@pytest.mark.parametrize("name", LENGTH_PENALTIES)
def test_penalties_take_tensors_too(name):
    penalty, values = LengthPenalty(name, 0.7), torch.tensor([-1.0, -4.0], dtype=torch.double)
    assert penalty.score(values, 5).tolist() == pytest.approx([penalty.score(-1.0, 5), penalty.score(-4.0, 5)])
    limits = torch.tensor([3, 8])
    assert penalty.bound(values, limits).tolist() == pytest.approx([penalty.bound(-1.0, 3), penalty.bound(-4.0, 8)])


def test_coverage_penalises_positions_without_attention():
    real = torch.tensor([True, True, True, False])
    covered = torch.tensor([[2.0, 0.5, 0.25, 0.0], [1.0, 1.0, 3.0, 0.0]])
    penalty = coverage_penalty(covered, real, 0.2)
    assert penalty.tolist() == pytest.approx([0.2 * math.log(0.5 * 0.25), 0.0])
    nothing = coverage_penalty(torch.zeros(4), real, 0.2)
    assert nothing.isfinite() and nothing < -10


def test_coverage_sums_over_steps_and_follows_rows():
    coverage = Coverage(1.0)
    coverage.add(torch.tensor([[[0.5, 0.5, 0.0]], [[0.2, 0.3, 0.5]]]))
    coverage.pick(torch.tensor([0, 1]), torch.tensor([[0, 0], [1, 1]]))
    step = torch.tensor([[[0.5, 0.5, 0.0], [0.1, 0.9, 0.0]], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]])
    expected = [[0.0, math.log(0.6)], [math.log(0.3 * 0.5), math.log(0.2 * 0.3)]]
    assert coverage.add(step).tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    coverage.pick(torch.tensor([1]), torch.tensor([[3]]))
    assert coverage.add(torch.tensor([[[0.0, 0.7, 0.3]]])).item() == pytest.approx(math.log(0.2))
    with pytest.raises(InputError, match="without cross-attention"):
        coverage.add(None)
    assert Coverage(0.0).add(None) is None
