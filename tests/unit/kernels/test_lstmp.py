"""The LSTM with a projection as one operation: the same as the loop, with its gradients and their gradients."""

import pytest
import torch

from ensue.kernels.lstmp import lstmp
from ensue.kernels.recurrent import scan
from ensue.nn.recurrent import ProjectedLSTMCell, Recurrent

FUSED = lstmp.implementations["fused"]


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    cell = ProjectedLSTMCell(5, 7, 3).double()
    memory = [torch.randn(4, width, dtype=torch.double, requires_grad=True) for width in (3, 7)]
    x = torch.randn(4, 6, 5, dtype=torch.double, requires_grad=True)
    return x, cell.weight_x, cell.weight_h, cell.bias, cell.weight_p, *memory


def test_it_equals_the_loop_forward_and_backward(inputs):
    ours, theirs = FUSED(*inputs), lstmp.reference(*inputs)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    above = [torch.randn_like(part) for part in ours]
    torch.testing.assert_close(
        torch.autograd.grad(ours, inputs, above), torch.autograd.grad(theirs, inputs, above), atol=1e-12, rtol=0
    )


def test_gradients_are_those_of_differences_and_have_gradients(inputs):
    assert torch.autograd.gradcheck(FUSED, inputs)
    assert torch.autograd.gradgradcheck(FUSED, inputs)


def test_a_layer_ends_each_row_where_it_ends():
    torch.manual_seed(0)
    cell = ProjectedLSTMCell(5, 7, 3).double()
    x, lengths = torch.randn(3, 6, 5, dtype=torch.double), torch.tensor([6, 2, 0])
    y, state = Recurrent(cell)(x, None, lengths)
    wanted, memory = scan.reference(cell, x, cell.start(3), lengths)
    real = torch.arange(6) < lengths[:, None]
    torch.testing.assert_close(y[real], wanted[real], atol=1e-12, rtol=0)
    torch.testing.assert_close(state.memory, memory, atol=1e-12, rtol=0)


def test_where_operations_must_be_seen_the_loop_runs(inputs):
    assert lstmp.choice(*inputs) == "fused"
    assert lstmp.choice(*(one.bfloat16() for one in inputs)) == "reference"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert lstmp.choice(*inputs) == "reference"
