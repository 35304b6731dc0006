"""Linformer gives what the package linformer 0.2.3 gives, with its weights."""

import pytest
import torch

from ensue.nn.mixers.linformer import Linformer
from ensue.nn.mixers.mixer import MixerConfig

reference = pytest.importorskip("linformer.linformer")


@pytest.mark.parametrize("time", [24, 17])
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_outputs_and_gradients_are_those_of_the_package(time, kv_heads):
    torch.manual_seed(0)
    theirs = reference.LinformerSelfAttention(32, 24, k=6, heads=4, one_kv_head=kv_heads == 1).double()
    config = MixerConfig(width=32, heads=4, kv_heads=kv_heads, causal=False, context=24)
    own = Linformer(config, rank=6).double()
    with torch.no_grad():
        own.project.weight.copy_(torch.cat([theirs.to_q.weight, theirs.to_k.weight, theirs.to_v.weight]))
        own.project.bias.zero_()
        own.project_keys.copy_(theirs.proj_k.T[None])
        own.project_values.copy_(theirs.proj_v.T[None])
    own.out.load_state_dict(theirs.to_out.state_dict())
    x = torch.randn(3, time, 32, dtype=torch.float64, requires_grad=True)
    found, wanted = own(x).y, theirs(x)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    by_own, by_theirs = (torch.autograd.grad(one.sin().sum(), x) for one in (found, wanted))
    torch.testing.assert_close(by_own, by_theirs, atol=1e-12, rtol=0)
