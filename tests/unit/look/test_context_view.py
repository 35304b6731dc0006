"""``ensue look context``: the loss at a reach is that of the last tokens alone; its table, chart and refusals."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.look.context import context, context_chart, context_table
from ensue.measure.reach import choose_targets, effective_context, losses_by_reach, reaches_up_to
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.models.transformer_xl import TransformerXL, TransformerXLConfig

SMALL = {"vocabulary": 7, "hidden": 8, "layers": 1}
MODELS = {
    "gpt": lambda: GPTLanguageModel(GPTConfig(**SMALL, heads=2, context=4)),
    "lstm": lambda: LSTMLanguageModel(LSTMConfig(**SMALL)),
    "transformer-xl": lambda: TransformerXL(TransformerXLConfig(**SMALL, heads=2, segment=3, memory=2)),
}
CURVE = {
    "system": "gpt",
    "targets": 9,
    "context": None,
    "reaches": [1, 2, 4],
    "bits_per_token": [4.0, 3.0, 2.99],
    "bits_per_byte": [2.0, 1.5, 1.495],
    "error": [0.1, 0.1, 0.1],
    "effective_context": 2,
    "bytes_per_token": 2.0,
}


@pytest.mark.parametrize("name", MODELS)
def test_a_loss_is_that_of_the_last_tokens_alone_whatever_else_is_asked(name):
    torch.manual_seed(0)
    model = MODELS[name]().double().eval()
    tokens, targets = np.random.default_rng(0).integers(7, size=40), np.array([9, 20, 31, 39])
    found = losses_by_reach(model, tokens, targets, [1, 3, 8])
    assert found.shape == (3, 4)
    for row, reach in enumerate([1, 3, 8]):
        for column, t in enumerate(targets):
            with torch.no_grad():
                logits = model(torch.from_numpy(tokens[t - reach : t])[None]).logits[0, -1]
            expected = -logits.log_softmax(-1)[tokens[t]].item() / np.log(2)
            assert found[row, column] == pytest.approx(expected, abs=1e-10)
    other = tokens.copy()
    other[:31] = (other[:31] + 1) % 7  # further back than the longest reach of the last target
    assert losses_by_reach(model, other, targets[3:], [8])[0, 0] == pytest.approx(found[2, 3], abs=1e-12)


def test_large_reaches_are_read_in_several_batches(monkeypatch):
    monkeypatch.setattr("ensue.measure.reach.TOKENS_AT_ONCE", 8)
    model, tokens = MODELS["lstm"]().double(), np.random.default_rng(0).integers(7, size=60)
    targets = np.arange(20, 27)
    several = losses_by_reach(model, tokens, targets, [3, 20])
    monkeypatch.setattr("ensue.measure.reach.TOKENS_AT_ONCE", 1 << 13)
    np.testing.assert_allclose(several, losses_by_reach(model, tokens, targets, [3, 20]), atol=1e-12)


def test_every_target_has_the_longest_reach_before_it_and_a_seed_gives_the_same_ones():
    targets = choose_targets(100, 30, 50, seed=3)
    assert len(set(targets.tolist())) == 50 and targets.min() >= 30 and targets.max() <= 99
    assert np.array_equal(targets, choose_targets(100, 30, 50, seed=3))
    assert not np.array_equal(targets, choose_targets(100, 30, 50, seed=4))
    assert choose_targets(33, 30, 50, seed=0).tolist() == [30, 31, 32]
    with pytest.raises(InputError, match="a text of 29 tokens has no token with 30 before it"):
        choose_targets(30, 30, 50, seed=0)


def test_the_effective_context_is_the_first_reach_within_one_percent_of_the_best():
    assert reaches_up_to(16) == [1, 2, 4, 8, 16]
    assert effective_context([1, 2, 4, 8], [4.0, 2.021, 2.02, 2.0]) == 4
    assert effective_context([1, 2, 4], [2.0, 2.5, 3.0]) == 1  # a model that longer contexts only confuse


def test_the_table_and_the_chart_name_every_run_and_reach():
    curves = [{"run": "a", **CURVE}, {"run": "b", **CURVE, "effective_context": 4, "bytes_per_token": 3.0}]
    lines = context_table(curves).splitlines()
    assert lines[1].split() == ["reach", "a", "b"] and lines[2].split() == ["1", "2.0000", "2.0000"]
    assert lines[5].split()[-2:] == ["2", "4"] and "3.00 bytes in b" in lines[6]
    described = context_chart(curves).to_dict()["description"]
    assert "a: 2.000 with 1 token, 1.495 with 4, effective context 2" in described and "b: " in described


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "context needs a text"),
        ({"text": "a", "data": ["b"]}, "context needs a text"),
        ({"text": "a", "length": 0}, "--length 0 must be 1 or more"),
        ({"text": "a", "samples": 0}, "--samples 0 must be 1 or more"),
        ({"text": "a", "memory": 5}, "none of these runs has a memory"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_one_line(options, message):
    run = SimpleNamespace(model=MODELS["lstm"]())
    with pytest.raises(InputError, match=message):
        context([run], **options)
