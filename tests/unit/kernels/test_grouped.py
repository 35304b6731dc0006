"""Weights in groups: the panels hold what was put in, and a decode program computes the same products."""

import itertools

import pytest
import torch

from ensue.kernels import grouped
from ensue.kernels.decode_program import DecodeProgram
from ensue.kernels.decode_runner import DecodeRunner
from ensue.kernels.grouped import GroupedEmbedding, GroupedLinear, group_weights
from ensue.kernels.kernel import use
from ensue.kernels.loops import Loops, machine_code_runs
from ensue.nn.state import zeros_beside

FORMS = list(itertools.product((4, 8), (True, False), (torch.float16, torch.float32)))


def groups(bits, offsets, kind=torch.float16, outputs=48, inputs=128, group=32):
    """Codes, scales and offsets of a random matrix."""
    draw = torch.Generator().manual_seed(bits + 10 * offsets)
    shape = outputs, inputs // group, group
    low, high, dtype = (0, 16, torch.uint8) if bits == 4 else (-128, 128, torch.int8)
    codes = torch.randint(low, high, shape, generator=draw, dtype=dtype)
    scales, shifts = (torch.randn(shape[:2], generator=draw).to(kind) for _ in range(2))
    return codes, scales, shifts if offsets else None


def matrix(codes, scales, offsets):
    """The equation, number by number."""
    whole = codes.float() * scales.float()[..., None]
    return (whole if offsets is None else whole + offsets.float()[..., None]).flatten(1)


@pytest.mark.parametrize(("bits", "offsets", "kind"), FORMS)
@pytest.mark.parametrize(("outputs", "inputs", "group"), [(48, 128, 32), (40, 64, 16), (1, 32, 32)])
def test_panels_hold_the_matrix(bits, offsets, kind, outputs, inputs, group):
    given = groups(bits, offsets, kind, outputs, inputs, group)
    layer = GroupedLinear(*group_weights(*given), outputs)
    for implementation in ("reference", "loop"):
        with use(implementation, "decode_panels"):
            assert torch.equal(layer.weight, matrix(*given))
    assert (layer.bits, layer.group, layer.in_features) == (bits, group, inputs)
    for put, found in zip(given, layer.apart()):
        assert found is None if put is None else torch.equal(put, found)


@pytest.mark.skipif(not machine_code_runs(), reason="loops are loaded by numba here")
@pytest.mark.parametrize("bits", [4, 8])
def test_the_loop_keeps_its_workspace_until_it_is_done(monkeypatch, heap, bits):
    """A process that writes to what it has freed is killed here."""
    heap.bound(monkeypatch)
    monkeypatch.setattr(grouped, "loops", Loops("ensue.kernels.grouped_loops"))
    given = groups(bits, True)
    layer = GroupedLinear(*group_weights(*given), 48)
    with use("loop", "decode_panels"):
        assert torch.equal(layer.weight, matrix(*given))
    assert not heap.blocks


@pytest.mark.parametrize(("bits", "offsets", "kind"), FORMS)
def test_an_embedding_decodes_the_rows_of_its_tokens_alone(bits, offsets, kind):
    given = groups(bits, offsets, kind, outputs=40)
    embed = GroupedEmbedding(*group_weights(*given), 40)
    tokens = torch.tensor([[0, 39, 17], [3, 3, 16]])
    for implementation in ("reference", "loop"):
        with use(implementation, "decode_rows"):
            assert torch.equal(embed(tokens), matrix(*given)[tokens])
            with pytest.raises(IndexError):
                embed(torch.tensor([48 + 32]))


@pytest.mark.parametrize(("bits", "offsets", "kind"), FORMS)
@pytest.mark.parametrize("rows", [1, 3, 4, 9, 16, 40])
def test_a_program_computes_the_products(bits, offsets, kind, rows):
    given = groups(bits, offsets, kind, outputs=112, group=16 if kind == torch.float32 else 32)
    bias = torch.randn(112, generator=torch.Generator().manual_seed(1))
    layer = GroupedLinear(*group_weights(*given), 112, bias)
    x = torch.randn(rows, 128, generator=torch.Generator().manual_seed(rows))
    program = DecodeProgram(128 if rows > 16 else 16)
    into = program.buffer(128)
    program.linear(layer, into, answer=True)
    with torch.no_grad():
        found, wanted = DecodeRunner(program, into).run(x, []), layer(x)
    assert (found - wanted).abs().max() < 2e-4 * wanted.abs().max()


def test_sums_of_the_largest_codes_do_not_overflow():
    codes = torch.full((32, 4, 32), -128, dtype=torch.int8)
    layer = GroupedLinear(*group_weights(codes, torch.ones(32, 4), None), 32)
    program = DecodeProgram(16)
    into = program.buffer(128)
    program.linear(layer, into, answer=True)
    found = DecodeRunner(program, into).run(torch.full((1, 128), 3.0), [])
    assert torch.allclose(found, torch.full((1, 32), -128.0 * 3 * 128), rtol=1e-4)


def test_only_groups_of_four_inputs_can_be_packed():
    with pytest.raises(ValueError, match="not a multiple of 4"):
        group_weights(torch.zeros(16, 1, 6, dtype=torch.uint8), torch.ones(16, 1), None)


@pytest.mark.parametrize("bias", [True, False])
def test_inputs_get_the_gradient_of_a_linear_layer(bias):
    given = groups(4, True)
    layer = GroupedLinear(*group_weights(*given), 48, torch.ones(48) if bias else None)
    x = torch.randn(3, 5, 128, generator=torch.Generator().manual_seed(0), requires_grad=True)
    above = torch.randn(3, 5, 48, generator=torch.Generator().manual_seed(1))
    (found,) = torch.autograd.grad((layer(x) * above).sum(), x)
    plain = torch.nn.functional.linear(x, matrix(*given), torch.ones(48) if bias else None)
    (wanted,) = torch.autograd.grad((plain * above).sum(), x)
    assert torch.allclose(layer(x), plain, atol=1e-4) and torch.allclose(found, wanted, atol=1e-4)


def test_a_large_layer_is_decoded_a_few_outputs_at_a_time(monkeypatch):
    monkeypatch.setattr("ensue.kernels.grouped.DECODED_BYTES", 4 * 128 * 32)
    given = groups(4, True, outputs=112)
    layer = GroupedLinear(*group_weights(*given), 112, torch.arange(112.0))
    parts = [(here, part.clone()) for here, part in layer.slices()]  # they share a buffer
    assert [(here.start, here.stop) for here, _ in parts] == [(0, 32), (32, 64), (64, 96), (96, 112)]
    assert torch.equal(torch.cat([part for _, part in parts]), matrix(*given))
    x = torch.randn(7, 128, generator=torch.Generator().manual_seed(0), requires_grad=True)
    plain = torch.nn.functional.linear(x, matrix(*given), torch.arange(112.0))
    assert torch.allclose(layer(x), plain, atol=1e-3)
    (found,), (wanted,) = (torch.autograd.grad(y.square().sum(), x) for y in (layer(x), plain))
    assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-2)


def test_a_new_state_decodes_no_weights(monkeypatch):
    def refuse(layer):
        raise AssertionError(f"{layer} was decoded")

    monkeypatch.setattr(GroupedLinear, "weight", property(refuse))
    layer = GroupedLinear(*group_weights(*groups(4, True)), 48)
    assert zeros_beside(layer, 2, 3).dtype == torch.float32
