"""Every model of words in context keeps its laws on random shapes, saves and loads, and can learn."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ensue.models.laws import findings
from ensue.models.table import SYSTEMS
from ensue.runs.save_weights import own_tensors

VOCABULARY = 11
VARIANTS = {
    "elmo": [
        {"hidden": 9, "projection": 5, "filters": (3, 4, 2), "letter": 4},
        {
            "hidden": 7,
            "projection": 3,
            "filters": (0, 5),
            "letter": 3,
            "layers": 1,
            "highways": 0,
            "kernel": "reference",
        },
    ],
    "context2vec": [{"hidden": 7, "embedding": 5}, {"hidden": 5, "embedding": 4, "layers": 2, "negatives": 3}],
}
CASES = [(name, values) for name, many in VARIANTS.items() for values in many]


def build(name, values, seed=0):
    torch.manual_seed(seed)
    cls = SYSTEMS.load(name)
    return cls(cls.Config(vocabulary=VOCABULARY, dropout=0.0, **values))


def test_every_model_of_words_in_context_is_tested():
    assert {name for name in SYSTEMS if getattr(SYSTEMS.load(name), "task", "") == "contexts"} == set(VARIANTS)


@settings(max_examples=12, deadline=None)
@given(case=st.sampled_from(CASES), rows=st.integers(1, 4), time=st.integers(2, 9), seed=st.integers(0, 10**6))
def test_the_laws_hold_on_random_shapes(case, rows, time, seed):
    for found in findings(build(*case), seed=seed, rows=rows, time=time):
        assert found.kept, found


@pytest.mark.parametrize(("name", "values"), CASES)
def test_weights_survive_saving(name, values, tmp_path):
    model, other = build(name, values).eval(), build(name, values, seed=1).eval()
    save_file(own_tensors(model), tmp_path / "weights.safetensors")
    other.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    tokens = torch.randint(VOCABULARY, (2, 6))
    assert torch.equal(model(tokens).logits, other(tokens).logits)


@pytest.mark.parametrize("name", VARIANTS)
def test_one_batch_can_be_overfitted(name):
    model = build(name, VARIANTS[name][0])
    tokens = torch.randint(2, VOCABULARY, (3, 7))
    tokens[:, [0, -1]] = 1
    lengths = torch.tensor([7, 7, 7])
    before = sum(float(losses.detach().mean()) for losses in model.word_losses(tokens, lengths).values())
    optimiser = torch.optim.AdamW(model.parameters(), lr=5e-2, weight_decay=0)
    for _ in range(150):
        loss = model.context_loss(tokens, lengths)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    after = sum(float(losses.detach().mean()) for losses in model.eval().word_losses(tokens, lengths).values())
    assert after < 0.6 * before
