"""The mixer ``mamba`` gives the numbers of transformers' Mamba-2 with the same weights."""

import pytest
import torch

from ensue.nn.mixers.mixer import MixerConfig, build_mixer

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(("heads", "groups", "state", "kernel"), [(4, 1, 6, 4), (8, 2, 16, 3)])
def test_the_mixer_equals_the_one_of_transformers(heads: int, groups: int, state: int, kernel: int) -> None:
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    torch.manual_seed(0)
    config = transformers.Mamba2Config(
        hidden_size=16,
        num_heads=heads,
        head_dim=32 // heads,
        n_groups=groups,
        state_size=state,
        conv_kernel=kernel,
        expand=2,
        use_bias=True,
        chunk_size=8,
        num_hidden_layers=1,
    )
    theirs = Mamba2Mixer(config, 0).eval()
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    name = f"mamba:state={state}:groups={groups}:convolution={kernel}"
    ours = build_mixer(name, MixerConfig(width=16, heads=heads)).eval()
    given = theirs.state_dict()
    names = {"in_proj": "project", "conv1d": "convolution", "norm": "norm", "out_proj": "out"}
    renamed = {"A_log": "decay", "dt_bias": "step", "D": "skip"}
    weights = {renamed.get(key, key): value for key, value in given.items()}
    for old, new in names.items():
        weights = {key.replace(f"{old}.", f"{new}."): value for key, value in weights.items()}
    ours.load_state_dict(weights)
    x = torch.randn(2, 37, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours(x).y, theirs.torch_forward(x), atol=1e-4, rtol=1e-4)
