"""Features: layers mixed by trained weights, frozen or tuned, cached or not; and the encoder that reads them."""

import copy

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.elmo import ELMo, ELMoConfig
from ensue.models.features import FeatureConfig, Features, LayerCache
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.laws import labelled_laws
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel

TOKENS, LENGTHS = torch.tensor([[1, 4, 5, 1], [1, 6, 1, 0]]), torch.tensor([4, 3])


def elmo(**settings):
    torch.manual_seed(0)
    shape = {"vocabulary": 9, "hidden": 10, "projection": 4, "filters": (3, 4), "letter": 5, "dropout": 0.5}
    return ELMo(ELMoConfig(**{**shape, **settings}))


def features(**settings):
    return Features(elmo().reader(), FeatureConfig(run="runs/elmo", **settings))


def tagger(**settings):
    torch.manual_seed(1)
    body = BidirectionalEncoder(LSTMLanguageModel(LSTMConfig(vocabulary=9, hidden=5)), features(**settings))
    return Labelled(body, HeadConfig(kind="token", outputs=3, dropout=0.0))


def test_r123_features_are_gamma_times_the_weighted_sum_of_layers():
    mixed = features()
    with torch.no_grad():
        mixed.weights.copy_(torch.tensor([0.0, 1.0, -1.0]))
        mixed.scale.fill_(2.0)
    layers = mixed.reader.layers_of(TOKENS, LENGTHS)
    s = torch.tensor([1.0, torch.e, 1 / torch.e])
    wanted = 2 * sum(share * layer for share, layer in zip(s / s.sum(), layers))
    torch.testing.assert_close(mixed(TOKENS, LENGTHS), wanted)


def test_layers_have_equal_initial_weights_and_one_can_be_chosen():
    torch.testing.assert_close(features().shares, torch.full((3,), 1 / 3))
    mixed = features(layer=2)
    torch.testing.assert_close(mixed(TOKENS), mixed.reader.layers_of(TOKENS)[2])
    with pytest.raises(InputError, match="at most 2"):
        features(layer=3)


@pytest.mark.parametrize("tuned", [False, True])
def test_a_frozen_reader_is_not_trained_and_has_no_dropout(tuned):
    model = tagger(tuned=tuned).train()
    model(TOKENS, None, LENGTHS).logits.sum().backward()
    reader = model.body.features.reader
    learns = [p.grad is not None and bool(p.grad.abs().sum()) for p in reader.parameters()]
    assert any(learns) == tuned and reader.training == tuned
    assert model.body.features.weights.grad is not None and model.body.features.scale.grad is not None
    named = {name for name in model.depths() if ".reader." in name}
    assert bool(named) == tuned  # what never learns has no depth


def test_cached_layers_equal_computed_ones():
    mixed = features()
    read = mixed(TOKENS, LENGTHS)
    assert mixed.remember(TOKENS, LENGTHS) and len(mixed.memory) == 2
    real = torch.arange(4) < LENGTHS[:, None]
    torch.testing.assert_close(mixed(TOKENS, LENGTHS)[real], read[real])
    torch.testing.assert_close(mixed(TOKENS[1:, :3], LENGTHS[1:]), read[1:, :3])
    mixed.reader = None  # nothing is read any more
    mixed(TOKENS, LENGTHS)


def test_copies_share_the_cache_and_loading_weights_clears_it():
    mixed = features()
    mixed.remember(TOKENS, LENGTHS)
    assert copy.deepcopy(mixed).memory is mixed.memory
    mixed.load_state_dict(mixed.state_dict())
    assert len(mixed.memory) == 0 and mixed.memory.recall(TOKENS, LENGTHS) is None


def test_the_cache_is_bounded():
    memory = LayerCache(max_bytes=3 * 4 * 8 * 4)  # one row of four tokens, three layers of width 8
    layers = torch.randn(3, 2, 4, 8)
    assert not memory.keep(TOKENS, LENGTHS, layers) and len(memory) == 1
    assert memory.recall(TOKENS, LENGTHS) is None  # not all rows are there


def test_a_tagger_with_features_keeps_its_laws_and_reads_words_beyond_its_vocabulary():
    model = tagger()
    assert all(found.kept for found in labelled_laws(model))
    logits = model.eval()(torch.tensor([[1, 20, 1], [1, 21, 1]])).logits
    assert not torch.equal(logits[0, 1], logits[1, 1])  # the same vector a word, other letters


def test_the_encoder_is_bidirectional():
    model = LSTMLanguageModel(LSTMConfig(vocabulary=9, hidden=5))
    body = BidirectionalEncoder(model).eval()
    first, second = body(torch.tensor([[1, 2, 3]])).hidden, body(torch.tensor([[1, 2, 4]])).hidden
    assert body.width == 10 and not torch.allclose(first[0, 0], second[0, 0])
    torch.testing.assert_close(first[0, 0, :5], second[0, 0, :5])  # what reads from the left has not seen it yet
