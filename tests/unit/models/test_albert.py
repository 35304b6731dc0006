"""ALBERT: narrow embeddings, layers that share blocks, and the order of a pair."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from ensue.core.errors import InputError
from ensue.kernels.int8 import quantise
from ensue.measure.cost import parameter_parts
from ensue.models.albert import ALBERT, SIZES, ALBERTConfig
from ensue.models.bert import BERT, BERTConfig
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.models.labelled import HeadConfig, Labelled
from ensue.nn.adapters import adapt, merge
from ensue.nn.recompute import recompute_blocks
from ensue.nn.trunk import Trunk
from ensue.runs.context_vectors import layer_count
from ensue.runs.init_from import evenly_spaced_blocks
from ensue.runs.save_weights import write_model
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.sharding import shard_units

TINY = {"vocabulary": 31, "layers": 6, "heads": 2, "hidden": 32, "context": 12, "embedding": 6}
TOKENS = torch.randint(31, (3, 9), generator=torch.Generator().manual_seed(1))
LENGTHS = torch.tensor([9, 4, 1])
PLACES = torch.tensor([[0, 3, 8], [0, 1, 2], [0, 0, 0]])


def albert(std=0.2, **changes):
    torch.manual_seed(0)
    made = ALBERT(ALBERTConfig(**{**TINY, **changes}))
    for weight in made.parameters():
        torch.nn.init.normal_(weight, std=std)
    return made


def apart(model):
    """The same function with a block of its own for each layer."""
    twin = ALBERT(replace(model.config, groups=0))
    state = {name: tensor for name, tensor in model.state_dict().items() if ".blocks." not in name}
    for layer, block in enumerate(model.body.blocks.blocks):
        state |= {f"body.blocks.{layer}.{name}": tensor for name, tensor in block.state_dict().items()}
    twin.load_state_dict(state)
    return twin


def loss_of(model):
    found = model.encode(TOKENS, None, LENGTHS, PLACES).hidden
    return model.masked_loss(found[:, 1:].flatten(0, 1), TOKENS[:, :3].flatten()) + model.next_loss(
        found[:, 0], torch.tensor([0, 1, 1])
    )


@pytest.mark.parametrize(
    ("size", "body", "whole"),
    [
        ("base", 11_683_584, 11_813_810),
        ("large", 17_683_968, 17_847_474),
        ("xlarge", 58_724_864, 59_021_490),
        ("xxlarge", 222_595_584, 223_158_450),
    ],
)
def test_the_published_sizes(size, body, whole):
    shape = {name: value for name, value in ALBERT.presets[size].items() if "." not in name}
    assert shape == SIZES[size] and ALBERT.presets[size]["tokenizer.vocabulary"] == 30_000
    with torch.device("meta"):
        model = ALBERT(ALBERTConfig(vocabulary=30_000, **shape))
    assert parameter_parts(model)["body"] == body
    assert sum(p.numel() for p in model.parameters()) == whole
    E, D = 128, shape["hidden"]
    assert whole - body == D * E + E + 2 * E + 30_000 + 2 * D + 2  # dense, norm, bias of the tied layer, order


def test_embeddings_are_normed_at_their_own_width_and_then_mapped():
    model = albert(dropout=0.0)
    body, segments = model.body, (torch.arange(9) > 4).long().expand(3, -1)
    x = body.embed.weight[TOKENS] + body.segments.weight[segments] + body.positions.weight[:9]
    x = torch.nn.functional.layer_norm(x, (6,), body.norm.weight, body.norm.bias, 1e-12)
    expected = x @ body.project.weight.T + body.project.bias
    torch.testing.assert_close(body(TOKENS, segments, layers=True).layers[0], expected)
    assert expected.shape == (3, 9, 32) and body.width == 32
    hidden = body(TOKENS, segments).hidden
    head = model.head
    t = torch.nn.functional.gelu(hidden @ head.dense.weight.T + head.dense.bias, approximate="tanh")
    t = torch.nn.functional.layer_norm(t, (6,), head.norm.weight, head.norm.bias, 1e-12)
    torch.testing.assert_close(head(hidden), t @ body.embed.weight.T + head.out.bias)


def test_an_embedding_as_wide_as_the_model_is_mapped_only_if_it_is_asked_for():
    assert isinstance(Encoder(EncoderConfig(**{**TINY, "embedding": 0})).project, torch.nn.Identity)
    assert Encoder(EncoderConfig(**{**TINY, "embedding": 32})).project.weight.shape == (32, 32)


@pytest.mark.parametrize(("groups", "used"), [(1, [0] * 6), (2, [0, 0, 0, 1, 1, 1]), (4, [0, 0, 1, 2, 2, 3])])
@pytest.mark.parametrize("norm", ["post", "reversible"])
def test_layers_that_share_blocks_compute_what_copies_of_them_would(groups, used, norm):
    shared = albert(groups=groups, norm=norm).double()
    own = list(shared.body.blocks)
    assert [next(n for n in range(groups) if own[n] is block) for block in shared.body.blocks.blocks] == used
    twin = apart(shared).double()
    shown, seen = (one.eval().body(TOKENS, None, LENGTHS, weights=True, layers=True) for one in (shared, twin))
    assert len(shown.layers) == 7 and len(shown.attention) == 6
    torch.testing.assert_close((shown.layers, shown.attention), (seen.layers, seen.attention))
    losses = [loss_of(one.train()) for one in (shared, twin)]
    for loss in losses:
        loss.backward()
    torch.testing.assert_close(*losses)
    for number, block in enumerate(own):
        for name, weight in block.named_parameters():
            copies = [twin.body.blocks[layer].get_parameter(name).grad for layer in range(6) if used[layer] == number]
            torch.testing.assert_close(weight.grad, torch.stack(copies).sum(0))


def test_a_shared_block_is_recomputed_with_the_same_gradients():
    plain, again = albert(dropout=0.2), albert(dropout=0.2)
    assert recompute_blocks(again) == 1
    for model in (plain, again):
        torch.manual_seed(3)
        loss_of(model.train()).backward()
    for one, other in zip(plain.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_a_shared_block_is_stored_trained_and_counted_once(tmp_path):
    model = albert()
    names = [name for name in model.state_dict() if ".blocks." in name]
    assert names and all(name.startswith("body.blocks.0.") for name in names)
    write_model(model, tmp_path / "weights")
    assert {name for name in load_file(tmp_path / "weights") if ".blocks." in name} == set(names)
    one = sum(p.numel() for p in model.body.blocks.parameters())
    assert sum(p.numel() for p in albert(layers=1).body.blocks.parameters()) == one
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    assert sum(p.numel() for p in optimiser.param_groups[0]["params"]) == sum(p.numel() for p in model.parameters())


def test_int8_replaces_the_layers_of_a_shared_block_in_every_layer():
    model = Labelled(Encoder(ALBERTConfig(**{**TINY, "hidden": 64, "embedding": 32})), HeadConfig(outputs=3)).eval()
    small = quantise(model)
    trunk = small.body.blocks
    assert isinstance(trunk, Trunk) and len(trunk) == 1 and len(trunk.blocks) == 6
    assert all(type(block.feed.up).__name__ == "QuantisedLinear" for block in trunk.blocks)
    with torch.no_grad():
        wide, narrow = (one(TOKENS, None, LENGTHS).logits for one in (model, small))
    torch.testing.assert_close(narrow, wide, atol=0.05, rtol=0.1)
    assert not torch.equal(narrow, wide)


def test_adapters_beside_a_shared_block_are_merged_into_it():
    model = albert().eval()
    before = model(TOKENS).logits
    count = adapt(model.body, 2, 4.0)
    assert count == 4 + 2  # two of attention and two of the feed-forward network; the mapping and the pooler
    for name, weight in model.named_parameters():
        if name.endswith(".up"):
            torch.nn.init.normal_(weight, std=0.3)
    adapted = model(TOKENS).logits
    merge(model)
    torch.testing.assert_close(model(TOKENS).logits, adapted)
    assert not torch.allclose(adapted, before)


@pytest.mark.parametrize(("groups", "blocks"), [(1, 1), (3, 3), (0, 6)])
def test_depths_count_a_shared_block_once(groups, blocks):
    model = Labelled(Encoder(ALBERTConfig(**TINY, groups=groups)), HeadConfig(outputs=3))
    depths = model.depths()
    assert set(depths.values()) == set(range(blocks + 2)) and depths.keys() == dict(model.named_parameters()).keys()
    assert depths["body.embed.weight"] == depths["body.project.weight"] == 0
    assert depths["body.blocks.0.feed.up.weight"] == 1
    assert depths["out.weight"] == depths["body.pooler.weight"] == blocks + 1
    LayerUnfreezing(depths, frozen=2)(model, 0)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {name for name, depth in depths.items() if depth < 2}


def test_hidden_states_of_every_layer_can_be_chosen():
    body = albert().body
    assert layer_count(body) == 7 == len(body(TOKENS, layers=True).layers)


def test_a_model_of_fewer_layers_begins_with_the_same_shared_block():
    assert evenly_spaced_blocks(albert().body, albert(layers=3).body) == []
    assert evenly_spaced_blocks(albert(groups=3).body, albert(groups=2).body) == [0, 2]


def test_a_shared_block_is_no_unit_of_its_own_where_weights_are_sharded():
    model = albert()
    held = {id(module) for module in shard_units(model)}
    assert id(model.body.blocks[0]) not in held
    assert id(albert(groups=6).body.blocks[0]) not in held
    apart_units = albert(groups=0)
    assert {id(block) for block in apart_units.body.blocks} <= {id(unit) for unit in shard_units(apart_units)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"groups": 7}, r"groups = 7 .*between 0 and layers = 6"),
        ({"groups": -1}, "groups = -1"),
        ({"embedding": -1}, "embedding = -1"),
        ({"not_next": "other"}, "not_next = 'other'.*random or swapped"),
        ({"attention": "local:span=2,full"}, "local:span=2 and full cannot share a block"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(changes, says):
    with pytest.raises(InputError, match=says) as error:
        ALBERTConfig(**{**TINY, **changes})
    assert "\n" not in str(error.value)


def test_attention_can_differ_between_blocks():
    config = ALBERTConfig(**TINY, groups=2, attention="local:span=2*3,full*3")
    spans = [block.attention.span for block in Encoder(config).blocks.blocks]
    assert spans[0] == spans[2] != spans[3] == spans[5]


def test_the_rows_of_training_follow_from_both_settings_of_pairs():
    assert ALBERTConfig().pairs == "swapped" and BERTConfig().pairs == "random"
    assert ALBERTConfig(next_sentence=False).pairs == "none"
    assert BERT(BERTConfig(**{**TINY, "groups": 2, "not_next": "swapped"})).next is not None
