"""Local attention against the package local-attention (1.11.2), whose windows of w positions see w before and after."""

import pytest
import torch

from ensue.nn.layout import PADDED
from ensue.nn.mixers.mixer import MixerConfig, build_mixer

package = pytest.importorskip("local_attention")


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both"])
@pytest.mark.parametrize("window", [3, 8, 70])
def test_attention_is_the_packages(causal, window):
    torch.manual_seed(0)
    theirs = package.LocalAttention(
        window_size=window,
        causal=causal,
        look_backward=1,
        look_forward=int(not causal),
        exact_windowsize=True,
        autopad=True,
        use_rotary_pos_emb=False,
    )
    ours = build_mixer(f"local:span={window + 1}", MixerConfig(width=32, heads=4, causal=causal)).double()
    x = torch.randn(2, 150, 32, dtype=torch.double)
    query, key, value = ours._heads(ours._projected(x))
    real = torch.ones(2, 150, dtype=torch.bool)  # without it, theirs sees what it pads windows with
    expected = ours.out(theirs(query, key, value, mask=real).transpose(1, 2).flatten(2))
    torch.testing.assert_close(ours(x, None, PADDED).y, expected, atol=1e-9, rtol=0)
