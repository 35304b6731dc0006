"""Performer: an unbiased estimate of softmax attention, whose draws are renewed and survive a resume."""

import math
from dataclasses import replace

import pytest
import torch

from ensue.core.errors import InputError
from ensue.kernels.attention import attention_weights
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.nn.mixers.performer import Performer, orthogonal_features

CONFIG = MixerConfig(width=16, heads=2, context=64, causal=False)
GPT = GPTConfig(vocabulary=11, layers=2, heads=2, hidden=16, context=16, attention="performer:features=8:redraw=3")


def mixer(seed=0, **options):
    torch.manual_seed(seed)
    return Performer(CONFIG, **options).double().eval()


def kernel(draw, q, k):
    """The estimate of exp(q · k) for each pair, (N, d), (M, d) → (N, M)."""
    phi_q, phi_k = (torch.exp(x @ draw.T - x.square().sum(-1, keepdim=True) / 2) for x in (q, k))
    return phi_q @ phi_k.T / len(draw)


def test_the_estimate_of_the_kernel_has_no_bias():
    torch.manual_seed(0)
    q, k = (torch.randn(5, 8, dtype=torch.float64) * 0.3 for _ in range(2))
    many = torch.stack([kernel(orthogonal_features(8, 8, seed).double(), q, k) for seed in range(4000)])
    error = (many.mean(0) - torch.exp(q @ k.T)).abs()
    assert (error < 4.5 * many.std(0) / len(many) ** 0.5).all()
    assert (error / torch.exp(q @ k.T)).max() < 0.05


def test_the_mixers_features_are_those_of_the_kernel():
    own = mixer(features=32)
    q, k = (torch.randn(1, 2, 5, 8, dtype=torch.float64) for _ in range(2))
    found = own.query_features(q) @ own.log_key_features(k).exp().mT
    wanted = kernel(own.draw, q[0, 1] / 8**0.25, k[0, 1] / 8**0.25)
    torch.testing.assert_close(found[0, 1] / found[0, 1, :, :1], wanted / wanted[:, :1])


def attention_error(features, seed):
    """The error of the weights, root of the mean square relative to the weights."""
    own = mixer(seed, features=features)
    torch.manual_seed(99)
    x = torch.randn(1, 48, 16, dtype=torch.float64)
    with torch.no_grad():
        own.project.weight.copy_(torch.randn(own.project.weight.shape, dtype=torch.float64) / 12)
        own.project.bias.zero_()
        query, key, _ = own._heads(own._projected(x))
        wanted, found = attention_weights(query, key), own(x, None, weights=True).weights
    return ((found - wanted).square().mean() / wanted.square().mean()).sqrt().item()


def test_the_error_falls_with_the_root_of_the_features():
    counts = [16, 64, 256, 1024]
    errors = [math.log(sum(attention_error(count, seed) for seed in range(8)) / 8) for count in counts]
    logs = [math.log(count) for count in counts]
    middle = sum(logs) / len(logs)
    slope = sum((x - middle) * y for x, y in zip(logs, errors)) / sum((x - middle) ** 2 for x in logs)
    assert -0.6 < slope < -0.4


def test_draws_are_orthogonal_and_as_long_as_those_of_a_normal_distribution():
    width = 16
    draws = torch.stack([orthogonal_features(3 * width, width, seed).double() for seed in range(100)])
    for block in draws.split(width, dim=1):
        products = block @ block.mT
        apart = products - torch.diag_embed(products.diagonal(dim1=-2, dim2=-1))
        assert apart.abs().max() < 1e-4
    squares = draws.square().sum(-1).flatten()  # χ² with d degrees: mean d, variance 2 d
    assert abs(squares.mean() - width) < 4 * (2 * width / len(squares)) ** 0.5
    assert abs(squares.var() / (2 * width) - 1) < 0.1
    assert orthogonal_features(5, width, 0).shape == (5, width)
    assert draws.mean(0).abs().max() < 0.6


def test_large_keys_do_not_overflow():
    for causal in (True, False):
        torch.manual_seed(0)
        own = Performer(replace(CONFIG, causal=causal)).eval()
        with torch.no_grad():
            own.project.weight *= 200
            x = torch.randn(2, 20, 16)
            found = own(x, None, weights=True)
            assert found.y.isfinite().all() and found.weights.isfinite().all()
            if causal:
                state, steps = own.start(2), []
                for step in range(20):
                    mixed = own(x[:, step : step + 1], state)
                    state = mixed.state
                    steps.append(mixed.y)
                assert torch.cat(steps, dim=1).isfinite().all()


def test_a_draw_is_renewed_at_the_right_updates_as_a_function_of_their_number():
    own, seen = mixer(redraw=10), []
    for update in range(31):
        own.after_update(update)
        seen.append(own.draw.clone())
    changed = [n for n in range(1, 31) if not torch.equal(seen[n], seen[n - 1])]
    assert changed == [10, 20, 30]
    resumed = mixer(redraw=10)
    resumed.load_state_dict(own.state_dict() | {"draw": seen[25]})
    before = torch.get_rng_state()
    for update in range(25, 31):
        resumed.after_update(update)
    assert torch.equal(resumed.draw, seen[30])
    assert torch.equal(torch.get_rng_state(), before)
    other = mixer(1, redraw=10)
    other.after_update(30)
    assert not torch.equal(other.draw, seen[30])


def test_the_first_draw_is_kept_where_none_is_renewed():
    own = mixer(redraw=0)
    before = own.draw.clone()
    for update in (0, 1, 1000):
        own.after_update(update)
    assert torch.equal(own.draw, before)


def test_a_model_that_is_loaded_gives_the_same():
    torch.manual_seed(0)
    model, tokens = GPTLanguageModel(GPT).eval(), torch.randint(11, (2, 9))
    for update in range(5):
        for module in model.modules():
            if isinstance(module, Performer):
                module.after_update(update)
    again = GPTLanguageModel(GPT).eval()
    with torch.no_grad():
        assert not torch.equal(again(tokens).logits, model(tokens).logits)
        again.load_state_dict(model.state_dict())
        assert torch.equal(again(tokens).logits, model(tokens).logits)
    draws = [module.draw for module in again.modules() if isinstance(module, Performer)]
    assert not torch.equal(*draws)  # each layer has its own


def test_evaluation_draws_nothing():
    own, x = mixer(features=8), torch.randn(2, 9, 16, dtype=torch.float64)
    before = torch.get_rng_state()
    assert torch.equal(own(x).y, own(x).y)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("options", ["features=-1", "redraw=-1"])
def test_wrong_options_are_refused_in_one_line(options):
    with pytest.raises(InputError, match="must be 0 or more"):
        build_mixer(f"performer:{options}", CONFIG)


@pytest.mark.parametrize("lengths", [None, torch.tensor([40, 0, 23])])
def test_a_later_token_with_large_features_changes_nothing_before_it(lengths):
    torch.manual_seed(0)
    own = build_mixer("performer", replace(CONFIG, causal=True)).eval()
    x = torch.randn(3, 40, 16) * torch.linspace(25, 1, 40)[:, None]  # small keys have large features
    layout = Layout(lengths)
    with torch.no_grad():
        y, state, _ = own(x, None, layout)
        torch.testing.assert_close(own(x[:, :20]).y[0], y[0, :20], atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(own(x, None, layout, weights=True).y, y)
        after = own(x[:, :1], state).y
        exact = own.double()
        wanted = exact(x.double(), None, layout)
        torch.testing.assert_close(y[0].double(), wanted.y[0], atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(y[2, :23].double(), wanted.y[2, :23], atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(after.double(), exact(x[:, :1].double(), wanted.state).y, atol=1e-3, rtol=1e-3)
