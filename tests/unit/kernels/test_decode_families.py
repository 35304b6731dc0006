"""Decode programs of Qwen3, Mistral, Gemma 2 and Gemma 3 give what the layers give, also far beyond a local span."""

import pytest
import torch
from torch import nn

from ensue.kernels.decode_program import CacheView, DecodeProgram
from ensue.kernels.decode_runner import DecodeRunner
from ensue.kernels.kernel import use
from ensue.kernels.threads import torch_threads
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.nn.adapters import adapt
from ensue.nn.mixers.full import use_cache_type
from ensue.runs.weight_bits import with_bits
from ensue.search.beam import Search, beam_search

pytestmark = pytest.mark.skipif(torch_threads() is None, reason="torch has other threads than OpenMP's here")
GEMMA = {"norm": "sandwich-rms", "feed": "geglu", "embed_scale": 8.0, "epsilon": 1e-6}
FAMILIES = {
    "qwen3": {"qk_norm": True},
    "mistral": {"attention": "local:span=6"},
    "gemma2": {**GEMMA, "attention": "local:span=6,full", "attention_cap": 2.0, "logit_cap": 3.0},
    "gemma3": {**GEMMA, "attention": "local:span=6:base=100*2,full", "qk_norm": True, "rope_base": 1e6},
    "two spans": {"attention": "local:span=3,local:span=9", "qk_norm": True, "norm": "pre", "bias": True},
    "span 1": {"attention": "local:span=1,full", "attention_cap": 1.0},
}


def llama(kind, **more):
    torch.manual_seed(0)
    sizes = {"vocabulary": 96, "layers": 3, "heads": 4, "kv_heads": 2, "head_width": 16, "hidden": 64, "inner": 96}
    model = LlamaLanguageModel(LlamaConfig(**sizes, context=400, **FAMILIES[kind] | more)).eval()
    for name, parameter in model.named_parameters():
        centre = 1.0 if "norm" in name and name.endswith("weight") else 0.0
        nn.init.normal_(parameter, centre, 0.2)
    return model


@torch.no_grad()
def read(model, prompts, rest, kernel):
    """Logits of each of ``rest`` (R, T), read token by token after prompts of different lengths; and the state."""
    with use(kernel, "decode"):
        states = [model(prompt[None], model.start(1), want=("last",)).state for prompt in prompts]
        state = type(states[0]).joined(states) if len(states) > 1 else states[0]
        found = []
        for token in rest.unbind(1):
            output = model(token[:, None], state, want=("last",))
            state = output.state
            found.append(output.logits)
    return torch.cat(found, dim=1), state


def texts(rows, steps):
    """Prompts of 1 to 25 tokens, and what follows."""
    torch.manual_seed(1)
    return [torch.randint(96, (1 + 8 * (row % 4),)) for row in range(rows)], torch.randint(96, (rows, steps))


def same(model, rows, steps=90, atol=5e-5):
    """The program gives what the layers give, and it is a program that runs."""
    prompts, rest = texts(rows, steps)
    expected, before = read(model, prompts, rest, "reference")
    assert not model._steps.programs.runners
    calls = []
    run = DecodeRunner.run_groups
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeRunner, "run_groups", lambda *given: calls.append(1) or run(*given))
        found, after = read(model, prompts, rest, "auto")
    assert len(calls) == steps + sum(len(prompt) == 1 for prompt in prompts)
    torch.testing.assert_close(found, expected, atol=atol, rtol=1e-4)
    assert after.trunk.clock.lengths.tolist() == before.trunk.clock.lengths.tolist()
    return after


@pytest.mark.parametrize("rows", [1, 5, 20])
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_program_gives_what_layers_give_beyond_the_span(kind, rows):
    model = llama(kind)
    state = same(model, rows)
    for block, cache in zip(model.blocks, state.trunk.blocks):
        most = 2 * max(block.attention.span, 16) if block.attention.span else 400
        assert cache.keys.shape[2] <= most and cache.used <= most


@pytest.mark.parametrize("kind", FAMILIES)
def test_caches_of_bfloat16(kind):
    model = llama(kind)
    use_cache_type(model, "bf16")
    state = same(model, 3, atol=3e-2)
    assert all(cache.keys.dtype == torch.bfloat16 for cache in state.trunk.blocks)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("kind", ["qwen3", "gemma2", "gemma3", "mistral"])
def test_weights_of_few_bits(kind, bits):
    same(with_bits(llama(kind), bits), 2, steps=40, atol=0.1)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_adapters(kind):
    model = llama(kind)
    same(with_adapters(with_bits(model, 8)), 2, steps=40, atol=0.1)


def with_adapters(model):
    assert adapt(model, 2, 4.0, lambda name: name != "head")
    return model.eval()


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_row_does_not_depend_on_those_beside_it(kind):
    model, (prompts, rest) = llama(kind), texts(4, 40)
    together, _ = read(model, prompts, rest, "auto")
    for row in range(4):
        alone, _ = read(model, prompts[row : row + 1], rest[row : row + 1], "auto")
        torch.testing.assert_close(alone[0], together[row], atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", FAMILIES)
def test_steps_by_layers_and_by_program_can_take_turns(kind):
    model, (prompts, rest) = llama(kind), texts(3, 60)
    expected, _ = read(model, prompts, rest, "reference")
    with torch.no_grad():
        states = [model(prompt[None], model.start(1), want=("last",)).state for prompt in prompts]
        state, found = type(states[0]).joined(states), []
        for number, token in enumerate(rest.unbind(1)):
            with use("reference" if number // 7 % 2 else "auto", "decode"):
                output = model(token[:, None], state, want=("last",))
            state = output.state
            found.append(output.logits)
            if number % 13 == 5:  # other rows, and the same again
                state = state.rows(torch.tensor([2, 0, 1])).rows(torch.tensor([1, 2, 0]))
            if number % 11 == 4:
                kept = state.fork()
                model(token[:, None], state, want=("last",))  # consumes one of them
                state = kept
    torch.testing.assert_close(torch.cat(found, dim=1), expected, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", FAMILIES)
def test_beams(kind):
    model, found = llama(kind), []
    how = Search(beam=4, length="none", nbest=4)
    for kernel in ("reference", "auto"):
        with torch.no_grad(), use(kernel, "decode"):
            state = model(torch.randint(96, (2, 5), generator=torch.Generator().manual_seed(1))).state
            found.append(beam_search(model, state, 3, end=None, longest=40, how=how))
    assert model._steps.programs.runners
    for one, other in zip(*found, strict=True):
        assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]


def test_a_state_can_go_back_until_something_was_dropped():
    model, (prompts, rest) = llama("gemma3"), texts(1, 80)
    tokens = torch.cat([prompts[0], rest[0]])
    with torch.no_grad():
        state, back = model(tokens[None, :1]).state, []
        for number in range(1, 70):
            state = model(tokens[None, number : number + 1], state, want=("last",)).state
            back.append(state.first(number - 1, number + 1) is not None)
            if number == 4:
                earlier = state.fork().first(3, 5)
        found = model(tokens[None, 3:4], earlier, want=("last",)).logits
        wanted = model(tokens[None, :4], want=("last",)).logits
    torch.testing.assert_close(found, wanted, atol=5e-5, rtol=1e-4)
    assert back == sorted(back, reverse=True) and back[0] and not back[-1]


def test_threads_do_not_change_the_output():
    model, rest = llama("gemma3", attention_cap=2.0), texts(3, 20)[1]
    prompts = [torch.tensor([row]) for row in range(3)]  # nothing but steps
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(read(model, prompts, rest, "auto")[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize(("span", "cap"), [(0, 0.0), (3, 0.0), (0, 0.5), (40, 0.5), (2, 30.0)])
@pytest.mark.parametrize("short", [False, True])
def test_a_span_and_a_cap_are_the_equation(span, cap, short):
    torch.manual_seed(0)
    d, rows, heads = 32, 4, 3
    kind = torch.bfloat16 if short else torch.float32
    program = DecodeProgram()
    first = program.buffer(3 * heads * d)
    y = program.attend(first, heads, heads, heads * d, append=True, span=span, cap=cap)
    identity = nn.Linear(heads * d, heads * d, bias=False)
    identity.weight.data = torch.eye(heads * d)
    program.linear(identity, y, answer=True)
    x, lengths = 3 * torch.randn(rows, 3 * heads * d), torch.tensor([3, 0, 51, 40])
    keys, values = (torch.randn(rows, heads, 52, d).to(kind) for _ in range(2))
    found = DecodeRunner(program, first).run(x, [CacheView(keys, values, lengths)])
    for r, size in enumerate(lengths.tolist()):
        start = max(0, size + 1 - span) if span else 0
        k, v = (one[r, :, start : size + 1].float() for one in (keys, values))
        scores = (x[r, : heads * d].view(heads, 1, d) @ k.transpose(1, 2)) / d**0.5
        scores = cap * (scores / cap).tanh() if cap else scores
        wanted = (scores.softmax(-1) @ v)[:, 0]
        torch.testing.assert_close(found[r].view(heads, d), wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("norm", [nn.LayerNorm(16), nn.RMSNorm(16, eps=1e-6)], ids=["layer", "rms"])
def test_norms_of_heads_and_norms_that_are_added_are_the_equation(norm):
    torch.manual_seed(0)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    program = DecodeProgram()
    first = program.buffer(80)
    program.norm_heads(norm, first[:, 16:64], 3)
    wide = type(norm)(80)
    for parameter in wide.parameters():
        nn.init.normal_(parameter)
    identity = nn.Linear(80, 80, bias=False)
    identity.weight.data = torch.eye(80)
    program.linear(identity, program.norm(wide, program.linear(identity, first), onto=first), answer=True)
    x = torch.randn(5, 80)
    with torch.no_grad():
        wanted = torch.cat([x[:, :16], norm(x[:, 16:64].view(5, 3, 16)).flatten(1), x[:, 64:]], dim=1)
        wanted = wanted + wide(wanted)
    torch.testing.assert_close(DecodeRunner(program, first).run(x, []), wanted, atol=1e-5, rtol=1e-5)
