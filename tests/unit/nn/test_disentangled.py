"""Disentangled attention as a mixer: what it compares, what layers share, and which settings it refuses."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.bert import BERT, BERTConfig
from ensue.models.deberta import DeBERTa, DeBERTaConfig
from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.runs.save_weights import own_tensors

CONFIG = MixerConfig(width=12, heads=3, causal=False, context=10)
SMALL = {"vocabulary": 11, "layers": 3, "heads": 2, "hidden": 8, "context": 16}


def made(text, **changes):
    torch.manual_seed(0)
    mixer = build_mixer(text, MixerConfig(**{"width": 12, "heads": 3, "causal": False, "context": 10} | changes))
    for weight in mixer.parameters():
        torch.nn.init.normal_(weight, std=0.6)
    return mixer


@pytest.mark.parametrize("text", ["disentangled:longest=3", "disentangled-shared:buckets=4"])
def test_distances_decide_and_positions_do_not(text):
    """A text between others of the same kind: its weights move with it."""
    mixer = made(text).eval()
    x = torch.randn(1, 4, 12).repeat(1, 3, 1)[:, :10]
    scores = mixer(x, weights=True).weights.log()
    a, b = scores[..., :-4, :-4], scores[..., 4:, 4:]
    torch.testing.assert_close(a - a[..., :1], b - b[..., :1], atol=1e-4, rtol=0)
    reversed_ = mixer(x.flip(1), weights=True).weights.flip(-1, -2)
    assert not torch.allclose(reversed_, scores.exp(), atol=1e-2)  # before is not behind


def test_distances_from_the_longest_on_are_one():
    mixer = made("disentangled:longest=3")
    assert mixer.row(torch.tensor([-9, -3, -2, 0, 2, 3, 9])).tolist() == [0, 0, 1, 3, 5, 5, 5]
    shared = made("disentangled-shared:longest=10:buckets=6", context=20)
    found = shared.row(torch.arange(-19, 20)).tolist()
    assert found == sorted(found) and found[19] == 6 and found[19 + 3] == 9 and found[-1] == 11 and found[0] == 0


@pytest.mark.parametrize("text", ["disentangled", "disentangled-shared:buckets=4"])
def test_layers_share_the_vectors_of_distances(text):
    model = DeBERTa(DeBERTaConfig(**SMALL, attention=text))
    first, *others = (block.attention.distances for block in model.body.blocks)
    assert all(one is first for one in others)
    tensors = own_tensors(model)
    assert sum(name.endswith("distances.weight") for name in tensors) == 1
    count = 8 if "buckets" in text else 32
    assert first.weight.shape == (count, 8)


def test_what_is_projected_together_and_what_apart():
    names = {name for name, _ in made("disentangled").named_parameters()}
    assert names == {
        "project.weight",
        "query_bias",
        "value_bias",
        "distances.weight",
        "position_key.weight",
        "position_query.weight",
        "position_query.bias",
        "out.weight",
        "out.bias",
    }
    names = {name for name, _ in made("disentangled-shared").named_parameters()}
    assert names == {
        *("project.weight", "project.bias", "out.weight", "out.bias"),
        *("distances.weight", "distances.norm.weight", "distances.norm.bias"),
    }


@pytest.mark.parametrize("text", ["disentangled", "disentangled-shared:buckets=4"])
@pytest.mark.parametrize("training", [False, True])
def test_some_positions_have_the_outputs_that_all_have(text, training):
    mixer = made(text, kv_heads=1).train(training)
    x, lengths, index = torch.randn(3, 7, 12), torch.tensor([7, 3, 0]), torch.tensor([[6, 0], [2, 1], [0, 0]])
    y, _, seen = mixer(x, None, Layout(lengths), True)
    here = x.gather(1, index[..., None].expand(-1, -1, 12))
    some, weights = mixer.at(index, here, x, Layout(lengths), True)
    torch.testing.assert_close(some, y.gather(1, index[..., None].expand(-1, -1, 12)), atol=1e-5, rtol=0)
    torch.testing.assert_close(weights, seen.gather(2, index[:, None, :, None].expand(-1, 3, -1, 7)))
    assert (seen[1, ..., 3:] == 0).all() and y.isfinite().all()


def test_other_queries_attend_to_the_same_text():
    mixer, other = made("disentangled"), torch.randn(2, 5, 12)
    x = torch.randn(2, 5, 12)
    every = torch.arange(5).expand(2, -1)
    found, _ = mixer.at(every, other, x, Layout())
    assert not torch.allclose(found, mixer(x).y, atol=1e-2) and not torch.allclose(found, mixer(other).y, atol=1e-2)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"attention": "disentangled", "positions": "rotary"}, "relative positions of its own"),
        ({"attention": "disentangled-shared", "positions": "alibi"}, "relative positions of its own"),
        ({"attention": "disentangled:longest=-1"}, "longest = -1 must be 0 or more"),
        ({"attention": "disentangled:buckets=4"}, "option of attention 'disentangled'"),
        ({"attention": "disentangled-shared:buckets=1"}, "buckets = 1 must be 0, or 2 or more"),
        ({"attention": "disentangled-shared:buckets=40"}, "longest = 16 must be above buckets / 2"),
    ],
)
def test_what_it_cannot_do_is_refused_in_one_line(settings, says):
    with pytest.raises(InputError, match=says) as error:
        BERT(BERTConfig(**SMALL, **settings))
    assert "\n" not in str(error.value)
