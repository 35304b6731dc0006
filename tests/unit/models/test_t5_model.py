"""T5: sizes of the published models, what is shared, dropout, and no longest text."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.t5 import NEWER, NEWER_SIZES, SIZES, T5, T5Config
from ensue.nn.planning import without_storage

TINY = {"vocabulary": 23, "source_vocabulary": 23, "layers": 2, "heads": 2, "hidden": 16, "dropout": 0.0}
PUBLISHED = {
    "t5-small": 60_506_624,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-v1.1-small": 76_961_152,
    "t5-v1.1-base": 247_577_856,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_published_sizes_have_their_number_of_parameters(name, count):
    sizes = SIZES | {own: {**NEWER, **size} for own, size in NEWER_SIZES.items()}
    with without_storage():
        model = T5(T5Config(vocabulary=32_128, source_vocabulary=32_128, **sizes[name]))
    assert sum(weight.numel() for weight in model.parameters()) == count


def test_the_layers_of_a_stack_share_the_bias_and_stacks_do_not():
    model = T5(T5Config(**TINY))
    encoder, decoder = ([block.attention.bias for block in side.blocks] for side in (model.encoder, model.decoder))
    assert encoder[0] is encoder[1] and decoder[0] is decoder[1] and encoder[0] is not decoder[0]
    assert model.head.weight is model.embed.weight
    assert T5(T5Config(**TINY, tied="embeddings")).head.weight is not model.embed.weight


def test_a_gradient_reaches_every_weight():
    model = T5(T5Config(**TINY, feed="geglu", tied="embeddings"))
    source, target = torch.randint(23, (2, 9)), torch.randint(23, (2, 5))
    model.pair_loss(source, torch.tensor([9, 4]), target, target, torch.tensor([5, 5])).backward()
    assert not [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]


def test_dropout_changes_training_and_not_evaluation():
    model = T5(T5Config(**{**TINY, "dropout": 0.3}))
    source, target = torch.randint(23, (2, 9)), torch.randint(23, (2, 5))

    def loss():
        with torch.no_grad():
            return float(model.pair_loss(source, torch.tensor([9, 9]), target, target, torch.tensor([5, 5])))

    assert len({loss() for _ in range(3)}) == 3
    model.eval()
    assert loss() == loss()
    active = [
        name
        for name, module in model.named_modules()
        if getattr(module, "p", 0.0) or getattr(module, "dropout", 0) == 0.3
    ]
    assert {name.rpartition(".")[2] for name in active} >= {"dropout", "attention", "cross"}
    assert any("feed.dropout" in name for name in active)


def test_it_reads_texts_that_are_longer_than_its_context():
    model = T5(T5Config(**TINY, context=8)).eval()
    with torch.no_grad():
        output = model(torch.randint(23, (1, 40)), model.start(torch.randint(23, (1, 50))))
    assert bool(output.logits.isfinite().all())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "relative:buckets=5"}, "buckets"),
        ({"attention": "relative:distance=3"}, "distance"),
        ({"attention": "relative:span=3"}, "span"),
        ({"tied": "target"}, "tied"),
        ({"norm": "post"}, "norm"),
        ({"feed": "tanh"}, "feed"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        T5(T5Config(**{**TINY, **settings}))
