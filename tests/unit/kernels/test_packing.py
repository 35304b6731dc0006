"""Rows without their padding: where tokens go, and that an encoder reads them as it reads padded ones."""

from __future__ import annotations

import pytest
import torch

from ensue.kernels.attention import attend
from ensue.kernels.dropout import mask as dropout_mask
from ensue.kernels.kernel import use
from ensue.kernels.packing import Packing
from ensue.models.encoder import Encoder, EncoderConfig
from ensue.nn.mixers.full import SelfAttention
from ensue.nn.mixers.mixer import MixerConfig

LENGTHS = torch.tensor([4, 1, 6, 4, 2, 6])


def encoder(**more: object) -> Encoder:
    torch.manual_seed(0)
    config = EncoderConfig(vocabulary=50, layers=3, heads=4, hidden=32, context=12, **more)  # type: ignore[arg-type]
    made = Encoder(config).double()
    for weight in made.parameters():
        weight.data += 0.1 * torch.randn_like(weight)
    return made.eval()


def test_packing_and_back() -> None:
    x = torch.arange(36.0).view(6, 6, 1)
    packing = Packing.of(LENGTHS, 6, 6)
    held = packing.pack(x)
    assert held.flatten().tolist() == [6, 24, 25, *range(0, 4), *range(18, 22), *range(12, 18), *range(30, 36)]
    assert packing.groups == ((1, 1), (1, 2), (2, 4), (2, 6))
    assert packing.positions.tolist() == [0, 0, 1, *range(4), *range(4), *range(6), *range(6)]
    real = torch.arange(6) < LENGTHS[:, None]
    assert torch.equal(packing.unpack(held), x * real[..., None])


def test_what_is_spare_is_the_last_place_again() -> None:
    x, lengths = torch.arange(400.0).view(40, 10, 1), torch.arange(40) % 10 + 1
    plain, spared = Packing.of(lengths, 40, 10), Packing.of(lengths, 40, 10, spared=True)
    assert (len(plain.index), len(spared.index)) == (220, 224)
    assert torch.equal(spared.pack(x)[:220], plain.pack(x)) and spared.pack(x)[220:].flatten().tolist() == [399.0] * 4
    assert spared.positions[-5:].tolist() == [9] * 5 and spared.counts[-2:].tolist() == [10, 14]


def test_places_come_back_in_the_order_of_rows() -> None:
    x = torch.arange(36.0).view(6, 6, 1)
    packing = Packing.of(LENGTHS, 6, 6)
    places = torch.stack([torch.zeros(6, dtype=torch.long), LENGTHS - 1], dim=1)
    found = packing.restore(packing.pick(packing.pack(x), places))
    assert torch.equal(found, x.gather(1, places[..., None]))


@pytest.mark.parametrize("lengths", [LENGTHS, torch.tensor([6, 0, 3, 1, 6, 2]), torch.full((6,), 6), None])
@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("segmented", [False, True])
def test_packed_rows_are_read_as_padded_ones(lengths: torch.Tensor | None, some: bool, segmented: bool) -> None:
    model = encoder()
    tokens, segments = torch.randint(50, (6, 6)), torch.randint(2, (6, 6)) if segmented else None
    real = torch.ones(6, 6, dtype=torch.bool) if lengths is None else torch.arange(6) < lengths.clamp(min=1)[:, None]
    places = torch.randint(6, (6, 3)) % real.sum(1, keepdim=True) if some else None
    wanted = model(tokens, segments, lengths, places).hidden  # with autograd nothing is packed
    with torch.no_grad():
        found = model(tokens, segments, lengths, places).hidden
        whole = model(tokens, segments, lengths, places, layers=True).hidden
    kept = torch.ones(6, 3, dtype=torch.bool) if some else real
    kept = kept if lengths is None else kept & (lengths > 0)[:, None]  # what is not there is nobody's to ask
    assert torch.allclose(found[kept], wanted[kept], atol=1e-12)
    assert torch.allclose(whole[kept], wanted[kept], atol=1e-12)


def test_lengths_that_pad_nothing_change_nothing() -> None:
    model, tokens = encoder(), torch.randint(50, (3, 5))
    assert torch.equal(model(tokens, None, torch.full((3,), 5)).hidden, model(tokens).hidden)


def test_nothing_is_packed_while_training() -> None:
    """Dropout must still be there."""
    model, tokens = encoder(dropout=0.5).train(), torch.randint(50, (3, 5))
    with torch.no_grad():
        assert not torch.equal(model(tokens).hidden, model(tokens).hidden)


def test_attention_drops_weights_and_nothing_else() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 2, 5, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = (torch.arange(5) < torch.tensor([5, 1, 3])[:, None])[:, None, None]
    torch.manual_seed(7)
    parts = tuple(one.transpose(1, 2).flatten(2) for one in (q, k, v))
    with use("cheap_dropout"):
        y = attend(parts, 2, torch.tensor([5, 1, 3]), dropout=0.25)
    found = y.view(3, 5, 2, -1).transpose(1, 2)
    torch.manual_seed(7)
    drawn = dropout_mask(torch.empty(3, 2, 5, 5, dtype=torch.float64), 0.25)
    weights = (q @ k.transpose(-2, -1) / 2).masked_fill(~mask, float("-inf")).softmax(-1)
    wanted = (weights * drawn) @ v
    assert torch.allclose(found, wanted, atol=1e-12)
    above = torch.randn_like(wanted)
    for mine, plain in zip(torch.autograd.grad(found, (q, k, v), above), torch.autograd.grad(wanted, (q, k, v), above)):
        assert torch.allclose(mine, plain, atol=1e-12)


def test_attention_under_training_uses_its_dropout() -> None:
    layer, x = SelfAttention(MixerConfig(width=8, heads=2, causal=False, dropout=0.5)).train(), torch.randn(2, 6, 8)
    many = torch.stack([layer(x)[0] for _ in range(800)])
    with torch.no_grad():
        wanted = layer.eval()(x)[0]
    assert many.std(0).min() > 0
    assert torch.allclose(many.mean(0), wanted, atol=0.06)
