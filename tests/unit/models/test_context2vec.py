"""context2vec: vectors of contexts, near the vectors of words that fit into them."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.context2vec import Context2vec, Context2vecConfig
from ensue.models.laws import laws_of


def small(**settings):
    torch.manual_seed(0)
    return Context2vec(Context2vecConfig(**{"vocabulary": 11, "hidden": 8, "embedding": 6, **settings}))


def test_it_keeps_its_laws():
    found = list(laws_of(small().double()))
    assert {one.law for one in found} == {"order law", "padding law", "memory law", "leak law"}
    assert all(one.kept for one in found), found


@torch.no_grad()
def test_r126_a_context_depends_on_all_words_but_the_one_at_its_position():
    model, tokens = small(layers=2).eval(), torch.randint(11, (1, 7))
    whole = model.context_vectors(tokens)[0]
    for place in range(7):
        other = tokens.clone()
        other[0, place] = (tokens[0, place] + 1) % 11
        changed = (model.context_vectors(other)[0] - whole).abs().amax(-1) > 0
        assert changed.tolist() == [at != place for at in range(7)]


def test_r126_negative_sampling_teaches_which_word_stands_between_two_others():
    torch.manual_seed(0)
    model = small(dropout=0.0, hidden=16, negatives=4)
    # the word before decides about the one in between, or else the word after
    rows = torch.tensor([[1, a, {5: 2, 6: 3}.get(a, b - 6), b, 1] for a in range(5, 8) for b in range(8, 11)])
    lengths = torch.full((9,), 5)
    model.set_word_counts(torch.bincount(rows.flatten(), minlength=11).float())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(300):
        loss = model.context_loss(rows, lengths)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.no_grad():
        said = model(rows).logits[:, 2].argmax(-1)
        gap = model.word_losses(rows, lengths)["gap"].view(9, 3)
    assert said.tolist() == rows[:, 2].tolist()
    assert gap[:, 1].exp().mean() < 1.3  # u · c + log of the noise is log P(w | context)


def test_negatives_are_sampled_by_counts_to_a_power():
    model = small()
    model.set_word_counts(torch.tensor([99.0] + [0.0] * 10))
    noise = model.head.noise.exp()
    assert float(noise.sum()) == pytest.approx(1, abs=1e-5)
    assert float(noise[0] / noise[1]) == pytest.approx(100**0.75, rel=1e-4)


def test_invalid_settings_are_refused():
    for wrong in ({"negatives": 0}, {"power": 2.0}, {"dropout": 1.0}):
        with pytest.raises(InputError):
            small(**wrong)
