"""Functional relative positions against transformers' Nezha with the same weights."""

import pytest
import torch
from test_bert import BERT_SIZES, LENGTHS, TOLERANCE, V, enlarge, rows

from ensue.exchange.huggingface.conversion import expand_map, export_weights, import_weights
from ensue.exchange.huggingface.weight_maps import BERT_BODY
from ensue.models.bert import BERT, BERTConfig

pytest.importorskip("transformers")
MODULE = pytest.importorskip("transformers.models.deprecated.nezha")
NAMES = {theirs: ours for theirs, ours in BERT_BODY.items() if theirs != "embeddings.position_embeddings.weight"}


def pair(length=17):
    sizes = {**BERT_SIZES, "max_position_embeddings": length}
    theirs = MODULE.NezhaModel(MODULE.NezhaConfig(**sizes, max_relative_position=64)).eval()
    enlarge(theirs)
    shape = {"layers": 3, "heads": 4, "hidden": 24, "inner": 40, "context": length}
    config = BERTConfig(vocabulary=V, **shape, positions="functional", next_sentence=False, pooled=False)
    ours = BERT(config).eval()
    names = expand_map(NAMES, 3)
    state = import_weights(names, theirs.state_dict())
    report = ours.body.load_state_dict(state, strict=False)
    assert not report.missing_keys and not report.unexpected_keys
    return ours.body, theirs, names


def test_hidden_states_weights_and_gradients_are_theirs():
    ours, theirs, names = pair()
    tokens, segments, real = rows(theirs)
    inputs = {"input_ids": tokens, "attention_mask": real.long(), "token_type_ids": segments}
    expected = theirs(**inputs, output_attentions=True)
    found = ours(tokens, segments, LENGTHS, weights=True)
    torch.testing.assert_close(found.hidden[real], expected.last_hidden_state[real], **TOLERANCE)
    for here, there in zip(found.attention, expected.attentions, strict=True):
        shown = real[:, None, :, None].expand_as(here)
        torch.testing.assert_close(here[shown], there[shown], **TOLERANCE)
    direction = torch.randn(found.hidden.shape)
    for model, hidden in ((ours, found.hidden), (theirs, expected.last_hidden_state)):
        model.zero_grad()
        (hidden * direction)[real].sum().backward()
    gradients = export_weights(names, {name: weight.grad for name, weight in ours.named_parameters()})
    for name, gradient in gradients.items():
        wanted = theirs.get_parameter(name).grad
        scale = float(wanted.abs().max().clamp(min=1))
        torch.testing.assert_close(gradient / scale, wanted / scale, atol=2e-5, rtol=0)


def test_distances_beyond_the_reach_count_as_the_reach():
    ours, theirs, _ = pair(150)
    tokens = torch.randint(5, V, (2, 150))
    with torch.no_grad():
        expected = theirs(input_ids=tokens, attention_mask=torch.ones_like(tokens)).last_hidden_state
        torch.testing.assert_close(ours(tokens).hidden, expected, atol=3e-5, rtol=1e-4)
