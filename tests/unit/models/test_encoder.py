"""The encoder at chosen positions, its sizes, and pooling."""

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.models.bert import BERT, BERTConfig, RoBERTa, RoBERTaConfig
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.models.table import SYSTEMS

TINY = {"vocabulary": 31, "layers": 2, "heads": 2, "hidden": 8, "context": 12}
LENGTHS = torch.tensor([9, 4, 1])
TOKENS = torch.randint(31, (3, 9), generator=torch.Generator().manual_seed(1))
SEGMENTS = (torch.arange(9) > 4).long().expand(3, -1)
PLACES = torch.tensor([[0, 3, 8, 3], [0, 1, 2, 3], [0, 0, 0, 0]])


def encoder(**changes):
    torch.manual_seed(0)
    made = Encoder(EncoderConfig(**{**TINY, "dropout": 0.0, **changes}))
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return made


def at(hidden, places):
    return hidden.gather(1, places[..., None].expand(-1, -1, hidden.shape[-1]))


@pytest.mark.parametrize("lengths", [None, LENGTHS])
@pytest.mark.parametrize("layers", [1, 2])
def test_chosen_positions_equal_those_of_the_whole(lengths, layers):
    made = encoder(layers=layers)
    whole = made(TOKENS, SEGMENTS, lengths, weights=True, layers=True)
    some = made(TOKENS, SEGMENTS, lengths, PLACES, weights=True, layers=True)
    torch.testing.assert_close(some.hidden, at(whole.hidden, PLACES))
    torch.testing.assert_close(some.layers[:-1], whole.layers[:-1])
    assert len(some.layers) == layers + 1 and some.layers[-1] is some.hidden
    seen = whole.attention[-1].gather(2, PLACES[:, None, :, None].expand(-1, 2, -1, 9))
    torch.testing.assert_close(some.attention[-1], seen)
    torch.testing.assert_close(some.attention[-1].sum(-1), torch.ones(3, 2, 4))
    if lengths is not None:
        assert some.attention[-1][1, :, :, 4:].eq(0).all()


def test_gradients_at_chosen_positions_equal_those_of_the_whole():
    made = encoder().double()
    found = []
    for places in (None, PLACES):
        made.zero_grad()
        hidden = made(TOKENS, SEGMENTS, LENGTHS, places).hidden
        (at(hidden, PLACES) if places is None else hidden).sin().sum().backward()
        found.append([p.grad.clone() for p in made.parameters() if p.grad is not None])
    torch.testing.assert_close(found[0], found[1])


def test_segments_change_outputs_unless_there_is_only_one():
    second = torch.ones_like(TOKENS)
    made = encoder()
    assert not torch.allclose(made(TOKENS, second).hidden, made(TOKENS).hidden)
    torch.testing.assert_close(made(TOKENS, torch.zeros_like(TOKENS)).hidden, made(TOKENS).hidden)
    for segments in (0, 1):  # where texts are not told apart it does not matter which they are of
        alike = encoder(segments=segments)
        torch.testing.assert_close(alike(TOKENS, second).hidden, alike(TOKENS).hidden)


def test_a_text_longer_than_the_context_is_refused():
    with pytest.raises(InputError, match="13 tokens do not fit into a context of 12"):
        encoder()(torch.zeros(1, 13, dtype=torch.long))


@pytest.mark.parametrize(("preset", "count"), [("base", 109_482_240), ("large", 335_141_888)])
def test_the_sizes_of_the_paper(preset, count):
    shape = {name: value for name, value in BERT.presets[preset].items() if "." not in name}
    with torch.device("meta"):
        model = BERT(BERTConfig(vocabulary=30_522, **shape))
    assert sum(p.numel() for p in model.body.parameters()) == count
    D = shape["hidden"]
    own = sum(p.numel() for p in model.parameters()) - count
    assert own == D * D + D + 2 * D + 30_522 + 2 * D + 2  # dense, norm, bias of the tied layer, next sentence


def test_the_masked_loss_is_that_of_the_logits():
    torch.manual_seed(0)
    model = BERT(BERTConfig(**TINY, dropout=0.0))
    found = model.encode(TOKENS, SEGMENTS, LENGTHS, PLACES).hidden
    logits = model(TOKENS, lengths=LENGTHS, segments=SEGMENTS).logits
    targets = torch.randint(31, (3, 4))
    wanted = F.cross_entropy(at(logits, PLACES).flatten(0, 1), targets.flatten())
    torch.testing.assert_close(model.masked_loss(found[:, 1:].flatten(0, 1), targets.flatten()), wanted)
    other = torch.tensor([0, 1, 1])
    pooled = torch.tanh(model.body.pooler(found[:, 0]))
    torch.testing.assert_close(model.next_loss(found[:, 0], other), F.cross_entropy(model.next(pooled), other))


def test_roberta_has_no_next_sentence_head_and_no_pooler():
    model = RoBERTa(RoBERTaConfig(**TINY))
    assert model.next is None and model.body.pooler is None and model.config.segments == 1
    assert {SYSTEMS.load(name).task for name in ("bert", "roberta")} == {"masked"}
    with pytest.raises(InputError, match="next_sentence"):
        BERTConfig(pooled=False)
