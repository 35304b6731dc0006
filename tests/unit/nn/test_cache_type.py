"""A key–value cache in bf16: half of the size, the same text but for rounding, by program and by operations."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.kernels.kernel import use
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.nn.mixers.full import use_cache_type

TOKENS = torch.randint(40, (3, 20), generator=torch.Generator().manual_seed(0))


def model(**settings):
    torch.manual_seed(0)
    config = GPTConfig(vocabulary=40, layers=2, heads=2, hidden=64, context=64, **settings)
    return GPTLanguageModel(config).eval()


@torch.no_grad()
def steps(own, start):
    """Logits of the tokens from ``start`` on, read one by one, and the state."""
    state, found = own(TOKENS[:, :start], want=("last",)).state, []
    for at in range(start, TOKENS.shape[1]):
        output = own(TOKENS[:, at : at + 1], state)
        state = output.state
        found.append(output.logits)
    return torch.cat(found, dim=1), state


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 1}, {"attention": "local:span=6"}, {"norm": "post"}])
@pytest.mark.parametrize("implementation", ["loop", "reference"])
def test_steps_are_those_of_float32_but_for_rounding(settings, implementation):
    own = model(**settings)
    wanted, wide = steps(own, 5)
    assert use_cache_type(own, "bf16") == 2
    with use(implementation, "decode") if implementation == "reference" else torch.no_grad():
        found, narrow = steps(own, 5)
    difference = (found - wanted).abs().max()
    assert 0 < difference < 0.02 * wanted.abs().max()
    keys, halves = wide.trunk.blocks[0].keys, narrow.trunk.blocks[0].keys
    assert halves.dtype == torch.bfloat16 and halves.numel() * halves.element_size() <= keys.numel() * 2


def test_a_program_rounds_as_torch_does():
    own = model(kv_heads=1)
    use_cache_type(own, "bf16")
    by_program = steps(own, 5)
    with use("reference", "decode"):
        by_operations = steps(own, 5)
    torch.testing.assert_close(by_program[0], by_operations[0], atol=2e-3, rtol=1e-3)
    used = TOKENS.shape[1]
    for mine, theirs in zip(by_program[1].trunk.blocks, by_operations[1].trunk.blocks):
        for one, other in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
            apart = (one[:, :, :used].float() - other[:, :, :used].float()).abs()
            assert (apart <= 2**-7 * other[:, :, :used].float().abs() + 1e-6).all()  # at most one step of rounding
            assert (apart == 0).float().mean() > 0.9


@pytest.mark.parametrize("settings", [{}, {"attention": "local:span=4"}])
@pytest.mark.parametrize("gradients", [False, True])
def test_rows_of_different_lengths(settings, gradients):
    own, lengths = model(**settings), torch.tensor([5, 2, 4])
    found = {}
    for name in ("float32", "bf16"):
        use_cache_type(own, name)
        with torch.no_grad():
            state = own(TOKENS[:, :5], own.start(3), lengths=lengths, want=("last",)).state
        with torch.set_grad_enabled(gradients), use("reference", "decode"):
            for at in range(5, 12):
                output = own(TOKENS[:, at : at + 1], state)
                state = output.state
        found[name] = output.logits.detach()
    difference = (found["bf16"] - found["float32"]).abs().max()
    assert difference < 0.02 * found["float32"].abs().max()


def test_not_a_number_stays_one():
    own = model()
    use_cache_type(own, "bf16")
    with torch.no_grad():
        state = own(TOKENS[:, :5], want=("last",)).state
        own.blocks[0].attention.project.bias[-1] = float("nan")  # of a value
        state = own(TOKENS[:, 5:6], state).state
    assert state.trunk.blocks[0].values[:, :, 5].isnan().any()


def test_float32_is_the_default_and_comes_back():
    own = model()
    wanted = steps(own, 5)[0]
    use_cache_type(own, "bf16")
    use_cache_type(own, "float32")
    assert torch.equal(steps(own, 5)[0], wanted)
    with pytest.raises(InputError, match="int3"):
        use_cache_type(own, "int3")


@pytest.mark.parametrize(("attention", "layers"), [("linear", 0), ("retention", 0), ("linear,sinkhorn:block=8", 1)])
def test_a_state_that_is_no_cache_has_no_type(attention, layers):
    assert use_cache_type(model(attention=attention), "bf16") == layers
