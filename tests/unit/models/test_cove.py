"""CoVe: the encoder's states as features; frozen weights have no depth and no gradient."""

import pytest
import torch

from ensue.models.bidirectional_encoder import BidirectionalEncoder
from ensue.models.cove import CoVe
from ensue.models.features import FeatureConfig, Features
from ensue.models.labelled import HeadConfig, Labelled
from ensue.models.laws import labelled_laws
from ensue.models.seq2seq import Seq2Seq, Seq2SeqConfig
from ensue.models.transformer import Transformer, TransformerConfig

V = 19
TOKENS = torch.randint(V, (3, 9), generator=torch.Generator().manual_seed(4))
LENGTHS = torch.tensor([9, 4, 2])


def seq2seq(**values):
    return Seq2Seq(Seq2SeqConfig(vocabulary=V, source_vocabulary=V, hidden=8, **values))


LENDERS = {
    "seq2seq": lambda: seq2seq(layers=2, connect="dense"),
    "bottleneck": lambda: seq2seq(attention="none", connect="dense"),
    "gru": lambda: seq2seq(cell="gru", encoder="bottom", layers=2),
    "transformer": lambda: Transformer(
        TransformerConfig(vocabulary=V, source_vocabulary=V, layers=2, heads=2, hidden=8, context=32)
    ),
    "post": lambda: Transformer(
        TransformerConfig(
            vocabulary=V, source_vocabulary=V, layers=1, heads=2, hidden=8, context=32, tied="all", norm="post"
        )
    ),
}


def states(model, source, lengths=None):
    """What a model that translates makes of a source."""
    if isinstance(model, Transformer):
        return model.encode(source, lengths)[0]
    return model.encoder(model.embed_source(source), lengths)[0]


def labelled(model, kind="token", **config):
    torch.manual_seed(0)
    body = BidirectionalEncoder(
        CoVe(CoVe.Config(vocabulary=V, hidden=6)), Features(model.reader(), FeatureConfig(**config))
    )
    return Labelled(body, HeadConfig(outputs=3, kind=kind))


@pytest.mark.parametrize("name", LENDERS)
def test_features_are_the_encoders_states(name):
    torch.manual_seed(1)
    model = LENDERS[name]().eval()
    reader = model.reader().eval()
    (found,) = reader.layers_of(TOKENS, LENGTHS)
    assert found.shape == (3, 9, reader.width) and not found[:, 0].any()
    for row, length in enumerate(LENGTHS.tolist()):  # as if each were translated alone
        wanted = states(model, TOKENS[row : row + 1, 1:length])[0]
        torch.testing.assert_close(found[row, 1:length], wanted)
    assert reader.layers_of(TOKENS[:, :1])[0].shape == (3, 1, reader.width)


@pytest.mark.parametrize("name", LENDERS)
@pytest.mark.parametrize("kind", ["token", "whole"])
def test_neither_padding_nor_other_rows_change_the_output_of_a_row(name, kind):
    model = labelled(LENDERS[name](), kind).eval()
    for found in labelled_laws(model, 1):
        assert found.kept, found


def test_frozen_weights_have_no_gradient_no_depth_and_no_dropout():
    model = labelled(seq2seq(dropout=0.5)).train()
    assert not model.body.features.reader.training
    model(TOKENS, None, LENGTHS).logits.sum().backward()
    reader = {name for name, _ in model.named_parameters() if "features.reader" in name}
    assert reader and all(p.grad is None for name, p in model.named_parameters() if name in reader)
    depths = model.depths()
    assert set(depths) == {name for name, _ in model.named_parameters()} - reader
    assert depths["body.features.scale"] == depths["out.weight"] == 2 and depths["body.embed.weight"] == 0
    tuned = labelled(seq2seq(), tuned=True)
    assert any("features.reader" in name for name in tuned.depths())
