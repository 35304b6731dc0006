"""The Transformer beside its laws: size, tied weights, state, attention weights and packed training."""

import pytest
import torch
from torch.nn import functional as F

import ensue.models.model as model_module
from ensue.core.errors import InputError
from ensue.kernels.attention import attend_packed
from ensue.kernels.packing import AttentionRows, Packing
from ensue.models.conditional import ConditionalModel
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.feed_forward import FeedForward
from ensue.nn.layout import Layout
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig
from ensue.nn.positions import SinusoidalPositions, sinusoids

V = 11
SMALL = {"vocabulary": V, "source_vocabulary": V, "layers": 2, "heads": 2, "hidden": 8, "context": 16}


def small(**settings):
    return Transformer(TransformerConfig(**{**SMALL, **settings})).eval()


def size(model):
    return sum(weight.numel() for weight in model.parameters())


@pytest.fixture
def pair():
    return torch.randint(V, (3, 5)), torch.randint(V, (3, 4))


def test_the_base_model_has_its_63_million_parameters():
    """R96: six layers, D = 512, 37,000 tied tokens; one matrix for both embeddings and the output."""
    preset = {name: value for name, value in Transformer.presets["base"].items() if "." not in name}
    config = TransformerConfig(vocabulary=37_000, source_vocabulary=37_000, tied="all", **preset)
    with torch.device("meta"):
        assert size(Transformer(config)) == 63_082_496


def test_ties_share_memory():
    every, target, none = (small(tied=tied) for tied in ("all", "target", "none"))
    assert every.embed.weight is every.embed_source.weight is every.head.weight
    assert target.embed.weight is target.head.weight is not target.embed_source.weight
    assert none.embed.weight is not none.head.weight
    assert size(none) - size(target) == size(target) - size(every) == V * 8


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_returning_attention_changes_no_output(norm, pair):
    source, tokens = pair
    model, lengths = small(norm=norm), torch.tensor([5, 2, 1])
    plain = model(tokens, model.start(source, lengths))
    looked = model(tokens, model.start(source, lengths), want=("logits", "attention"))
    assert plain.attention is None and len(looked.attention) == 2
    torch.testing.assert_close(looked.logits, plain.logits, atol=1e-6, rtol=0)
    for layer in looked.attention:
        assert layer.shape == (3, 2, 4, 5)
        torch.testing.assert_close(layer.sum(-1), torch.ones(3, 2, 4), atol=1e-6, rtol=0)
        assert (layer[1, :, :, 2:] == 0).all() and (layer[2, :, :, 1:] == 0).all()
        torch.testing.assert_close(layer[2, :, :, 0], torch.ones(2, 4))


def test_attention_is_each_rows_own_when_rows_share_a_sentence(pair):
    source, _ = pair
    model, rows = small(), torch.tensor([0, 0, 1, 1, 2, 2])
    many = torch.randint(V, (6, 4))
    together = model(many, model.start(source).rows(rows), want=("attention",)).attention
    for row, sentence in enumerate(rows.tolist()):
        alone = model(many[row : row + 1], model.start(source[sentence : sentence + 1]), want=("attention",)).attention
        for left, right in zip(together, alone, strict=True):
            torch.testing.assert_close(left[row : row + 1], right, atol=1e-6, rtol=0)


def test_the_encoder_returns_its_attention(pair):
    model, lengths = small(), torch.tensor([5, 2, 3])
    plain, looked = (model.encode(pair[0], Layout(lengths), weights) for weights in (False, True))
    seen = looked.weights
    assert plain.weights is None and torch.equal(plain.h, looked.h) and len(seen) == 2
    assert all(layer.shape == (3, 2, 5, 5) and (layer[1, :, :, 2:] == 0).all() for layer in seen)


def test_sentences_may_be_longer_than_the_context(pair):
    """A sinusoid has no end: the table grows, and what it held stays as it was."""
    model = small(context=2)
    wide = small(context=64)
    wide.load_state_dict(model.state_dict())
    source, tokens = torch.randint(V, (1, 40)), torch.randint(V, (1, 33))
    assert torch.equal(model(tokens, model.start(source)).logits, wide(tokens, wide.start(source)).logits)


def test_the_table_of_sinusoids_grows():
    positions, x = SinusoidalPositions(4, 6), torch.zeros(1, 3, 6)
    first = positions.table.clone()
    places = torch.tensor([[9, 0, 4]])
    found = positions(x, places, 10)
    assert len(positions.table) >= 10 and torch.equal(positions.table[:4], first)
    torch.testing.assert_close(found, sinusoids(places, 6).float())
    assert "table" not in positions.state_dict()


def test_without_positions_the_order_of_the_source_is_lost(pair):
    """Attention is blind to order; only the sinusoids tell one place from another."""
    source, tokens = pair
    model, order = small(), torch.tensor([3, 1, 4, 0, 2])

    def difference():
        with torch.no_grad():
            a, b = (model(tokens, model.start(given)).logits for given in (source, source[:, order]))
        return (a - b).abs().max().item()

    assert difference() > 1e-3
    model.positions.table.zero_()
    assert difference() < 1e-5


@pytest.mark.parametrize("tokens", [(3, 0), (0, 4)], ids=["no tokens", "no rows"])
def test_empty_input_is_no_error(tokens, pair):
    model = small()
    state = model.start(pair[0]).rows(torch.arange(tokens[0]))
    output = model(torch.zeros(tokens, dtype=torch.long), state, want=("logits", "attention"))
    assert output.logits.shape == (*tokens, V) and output.attention[0].shape == (tokens[0], 2, tokens[1], 5)


def test_cross_attention_to_an_empty_source_is_zero(pair):
    """Padded beside others or alone, it gives numbers, the same ones, and no weight to any position."""
    source, tokens = pair
    model = small()
    output = model(tokens, model.start(source, torch.tensor([5, 0, 2])), want=("logits", "attention"))
    alone = model(tokens[1:2], model.start(source[1:2, :0])).logits
    torch.testing.assert_close(output.logits[1:2], alone, atol=1e-5, rtol=0)
    assert all((layer[1] == 0).all() for layer in output.attention)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_label_smoothing_equals_torchs(smoothing, pair):
    """1 − ε of the truth and ε of the uniform distribution, over the real tokens only, with torch's gradients."""
    source, tokens = pair
    model, lengths, targets = small(), torch.tensor([4, 2, 0]), torch.randint(V, (3, 4))
    real = torch.arange(4) < lengths[:, None]

    def gradients(loss):
        return torch.autograd.grad(loss, list(model.parameters()))

    found, _ = model.loss(tokens, targets, model.start(source), lengths, smoothing)
    logits = model(tokens, model.start(source), lengths).logits[real]
    expected = F.cross_entropy(logits, targets[real], label_smoothing=smoothing)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)
    by_hand = -logits.log_softmax(-1)
    mixed = (1 - smoothing) * by_hand.gather(1, targets[real][:, None])[:, 0] + smoothing * by_hand.mean(1)
    torch.testing.assert_close(found, mixed.mean(), atol=1e-6, rtol=0)
    for left, right in zip(gradients(found), gradients(expected), strict=True):
        torch.testing.assert_close(left, right, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("slices", [False, True])
def test_log_prob_equals_the_logits_log_softmax(slices, pair, monkeypatch):
    source, tokens = pair
    model, lengths, targets = small(), torch.tensor([4, 2, 0]), torch.randint(V, (3, 4))
    if slices:
        monkeypatch.setattr(model_module, "LOGITS_AT_ONCE", 2 * V)
    found, _ = model.log_prob(tokens, targets, model.start(source), lengths)
    expected = model(tokens, model.start(source)).logits.log_softmax(-1).gather(-1, targets[..., None])[..., 0]
    torch.testing.assert_close(found, expected * (torch.arange(4) < lengths[:, None]), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("heads", 3), ("norm", "mid"), ("activation", "tanh"), ("tied", "source"), ("dropout", 1.0), ("layers", 0)],
)
def test_invalid_settings_are_refused(setting, value):
    with pytest.raises(InputError, match=setting):
        TransformerConfig(**{**SMALL, setting: value})


def test_dropout_is_active_in_training_only(pair):
    source, tokens = pair
    model = small(dropout=0.5).train()
    first, second = (model(tokens, model.start(source)).logits for _ in range(2))
    assert not torch.equal(first, second)
    model.eval()
    first, second = (model(tokens, model.start(source)).logits for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize(
    "lengths",
    [
        ((20, 3, 9, 15, 8), (11, 23, 2, 17, 8)),
        ((20, 9, 12, 8, 13), (23, 8, 9, 20, 11)),
        ((8, 20, 9) * 17, (9, 12, 23) * 17),  # 629 and 748 places: 11 and 20 are spare
        ((8, 99, 9) * 17, (9, 12, 99) * 17),  # what is longer than the time sees all of it, and nothing spare
    ],
)
def test_pairs_without_padding_have_the_loss_and_the_gradients_of_padded_ones(
    norm: str, lengths: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    torch.manual_seed(0)
    shape = TransformerConfig(vocabulary=50, source_vocabulary=50, hidden=64, heads=4, layers=2, norm=norm, dropout=0.0)
    model = Transformer(shape).train()
    rows = len(lengths[0])
    x, y, targets = (torch.randint(50, (rows, time)) for time in (20, 23, 23))
    pairs = x, torch.tensor(lengths[0]), y, targets, torch.tensor(lengths[1]), 0.1
    found = [way(*pairs) for way in (model.pair_loss, super(Transformer, model).pair_loss)]
    packed, padded = (torch.autograd.grad(loss, list(model.parameters())) for loss in found)
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-6)
    for one, other in zip(packed, padded, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_short_sentences_are_read_without_padding(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: seen.append(tuple(x.shape)) or x)
    model = Transformer(TransformerConfig(vocabulary=50, source_vocabulary=50, hidden=64, layers=1)).train()
    x, y, lengths = torch.randint(50, (3, 20)), torch.randint(50, (3, 12)), torch.tensor([20, 10, 2])
    model.pair_loss(x, lengths, y, y, torch.tensor([12, 8, 9]))
    long = torch.randint(50, (3, 65))
    model.pair_loss(long, lengths, y, y, torch.tensor([12, 8, 9]))
    assert seen == [(20 + 10 + 8, 64), (12 + 8 + 9, 64), (3, 65, 64), (3, 12, 64)]


class Deafened(Transformer):
    """Somebody's own, which hears nothing of a source."""

    def encode(self, source, layout=None, weights=False):
        found = super().encode(source, layout, weights)
        return found._replace(h=0 * found.h)


def both_ways(model: Transformer, source_lengths: list[int]) -> list[torch.Tensor]:
    """The loss as it is trained, and with padding."""
    torch.manual_seed(0)
    x, y = torch.randint(50, (3, 20)), torch.randint(50, (3, 12))
    pairs = x, torch.tensor(source_lengths), y, y, torch.tensor([12, 8, 9])
    return [way(*pairs) for way in (model.pair_loss, lambda *given: ConditionalModel.pair_loss(model, *given))]


WIDE = TransformerConfig(vocabulary=50, source_vocabulary=50, hidden=64, layers=1, dropout=0.0)


@pytest.mark.parametrize("lengths", [[0, 0, 0], [20, 0, 3], [99, 4, 20]])
def test_an_empty_source_is_not_attended_to_and_lengths_are_capped_at_the_row(lengths: list[int]) -> None:
    packed, padded = both_ways(Transformer(WIDE).train(), lengths)
    torch.testing.assert_close(packed, padded, rtol=1e-5, atol=1e-6)


def test_an_overridden_forward_is_used_in_training() -> None:
    packed, padded = both_ways(Deafened(WIDE).train(), [20, 7, 3])
    torch.testing.assert_close(packed, padded, rtol=1e-5, atol=1e-6)


def test_hooks_and_compiled_models_are_not_bypassed() -> None:
    model, seen = Transformer(WIDE).train(), []
    handle = model.register_forward_hook(lambda *given: seen.append("hook"))
    both_ways(model, [20, 7, 3])
    assert len(seen) == 2
    handle.remove()
    model.compile(backend=lambda graph, inputs: seen.append("compiled") or graph.forward)
    both_ways(model, [20, 7, 3])[0].backward()
    assert "compiled" in seen


def test_an_empty_batch_is_no_error() -> None:
    none = torch.zeros(0, 16, 64)
    for attention in (
        SelfAttention(MixerConfig(width=64, heads=4, causal=False)),
        SelfAttention(MixerConfig(width=64, heads=4)),
    ):
        assert attention(none)[0].shape == (0, 16, 64)


def test_packed_rows_take_the_short_kernel_however_long_the_last_is_made() -> None:
    lengths = next(
        one
        for one in (torch.randint(8, 25, (96,), generator=torch.Generator().manual_seed(seed)) for seed in range(50))
        if Packing.of(one, 96, 24, 8, spared=True).counts.max() > 64
    )
    packing = Packing.of(lengths, 96, 24, 8, spared=True)
    parts = (torch.randn(len(packing.index), 3 * 64, requires_grad=True),)
    assert attend_packed.choice(parts, 4, AttentionRows.of(packing, packing, lengths), causal=True) == "short"
