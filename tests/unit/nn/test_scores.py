"""What each score function can and cannot do."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.nn.scores import SCORES, Content, Dot, Location, ScaledDot, attend


def test_location_does_not_look_at_the_source():
    score, s = Location(4, 4, 9), torch.randn(2, 3, 4)
    first, second = (score(s, score.remember(torch.randn(2, 5, 4))) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", [name for name in SCORES if name != "location"])
def test_all_others_do(name):
    score, s = SCORES[name](4, 4, 9), torch.randn(2, 3, 4)
    first, second = (score(s, score.remember(torch.randn(2, 5, 4))) for _ in range(2))
    assert not torch.allclose(first, second)


def test_location_has_a_fixed_number_of_positions():
    score, s = Location(4, 4, 5), torch.randn(1, 2, 4)
    assert score(s, torch.randn(1, 5, 4)).shape == (1, 2, 5)
    with pytest.raises(InputError, match="location attention has 5 positions; this source has 6"):
        score(s, torch.randn(1, 6, 4))


def test_content_is_a_cosine_with_a_strength():
    score = Content(4, 4, 9)
    s, h = torch.randn(1, 2, 4), torch.randn(1, 3, 4)
    plain = score(s, score.remember(h))
    torch.testing.assert_close(score(5 * s, score.remember(0.1 * h)), plain)  # lengths of vectors do not count
    torch.testing.assert_close(score(h, score.remember(h)).diagonal(dim1=1, dim2=2), score.strength.exp().expand(1, 3))
    assert plain.abs().max() <= score.strength.exp() + 1e-6
    with torch.no_grad():
        score.strength += torch.tensor(3.0).log()
    torch.testing.assert_close(score(s, score.remember(h)), 3 * plain)


def test_a_vector_of_zeros_has_no_direction_and_no_nan():
    score = Content(4, 4, 9)
    assert torch.equal(score(torch.zeros(1, 1, 4), score.remember(torch.zeros(1, 2, 4))), torch.zeros(1, 1, 2))


def test_scaling_keeps_the_variance_of_a_score():
    wide = 256
    s, h = torch.randn(1, 200, wide), torch.randn(1, 200, wide)
    assert Dot(wide, wide, 9)(s, h).var().item() == pytest.approx(wide, rel=0.1)
    assert ScaledDot(wide, wide, 9)(s, h).var().item() == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("name", ["dot", "scaled-dot", "content"])
def test_what_compares_vectors_wants_one_width(name):
    with pytest.raises(InputError, match="of one width, not 4 and 6"):
        SCORES[name](4, 6, 9)


@pytest.mark.parametrize("name", ["additive", "general", "location"])
def test_the_others_take_two_widths(name):
    score = SCORES[name](4, 6, 9)
    assert score(torch.randn(2, 3, 4), score.remember(torch.randn(2, 5, 6))).shape == (2, 3, 5)


def test_attention_without_a_mask_is_attention_to_all():
    scores, values = torch.randn(2, 3, 5), torch.randn(2, 5, 4)
    plain, masked = attend(scores, values, None), attend(scores, values, torch.ones(2, 5, dtype=torch.bool))
    assert all(torch.equal(a, b) for a, b in zip(plain, masked))


def test_a_large_score_does_not_overflow():
    scores = torch.tensor([[[1e30, -1e30, 0.0]]])
    seen, weights = attend(scores, torch.eye(3)[None], None)
    assert torch.equal(weights, torch.tensor([[[1.0, 0.0, 0.0]]])) and torch.equal(seen, weights)
