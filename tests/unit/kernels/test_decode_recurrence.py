"""Decode programs of linear attention, retention and gated linear attention give what the layers give."""

import os

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ensue.kernels.decode_program import DecodeProgram, NotCompilable
from ensue.kernels.decode_runner import DecodeRunner
from ensue.kernels.decode_states import MatrixView, group_matrices
from ensue.kernels.kernel import use
from ensue.kernels.linear_scan import LEAST
from ensue.kernels.threads import torch_threads
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.llama import LlamaConfig, LlamaLanguageModel
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.adapters import adapt
from ensue.runs.weight_bits import with_bits
from ensue.search.beam import Search, beam_search

pytestmark = pytest.mark.skipif(torch_threads() is None, reason="torch has other threads than OpenMP's here")
SETTINGS = {
    "linear": {"attention": "linear"},
    "linear without positions": {"attention": "linear", "positions": "none", "norm": "post"},
    "shared heads": {"attention": "linear", "kv_heads": 2, "qk_norm": True},
    "retention": {"attention": "retention"},
    "gated-linear": {"attention": "gated-linear"},
    "gated-linear, shared heads": {"attention": "gated-linear", "kv_heads": 1, "norm": "rms"},
    "linear and full": {"attention": "linear,full"},
    "all kinds": {"attention": "local:span=6,linear,retention,full,gated-linear", "layers": 5},
}
CLOSE = {"atol": 1e-5, "rtol": 1e-5}


def gpt(kind, **more):
    torch.manual_seed(0)
    settings = {"vocabulary": 48, "layers": 2, "heads": 4, "hidden": 64, "context": 256, **SETTINGS[kind]}
    return GPTLanguageModel(GPTConfig(**settings | more)).eval()


def prompts_of(*lengths):
    """A prompt of each length."""
    torch.manual_seed(1)
    return [torch.randint(48, (length,)) for length in lengths]


@torch.no_grad()
def after(model, prompts):
    """The state after prompts, as rows of one batch."""
    states = [model(prompt[None], want=("last",)).state for prompt in prompts]
    return states[0] if len(states) == 1 else type(states[0]).joined(states)


@torch.no_grad()
def stepped(model, state, rest, kernel="auto"):
    """Logits of ``rest`` (R, T), read token by token, and the state after them."""
    found = []
    with use(kernel, "decode"):
        for token in rest.unbind(1):
            output = model(token[:, None], state, want=("last",))
            state = output.state
            found.append(output.logits)
    return torch.cat(found, dim=1), state


@pytest.fixture
def runs(monkeypatch):
    """One item for each run of a program."""
    calls, run = [], DecodeRunner.run_groups
    monkeypatch.setattr(DecodeRunner, "run_groups", lambda *given: calls.append(1) or run(*given))
    return calls


def assert_same_state(own, other):
    """The clocks and all matrices are the same; caches of local layers may hold more or less of what is not seen."""
    assert own.trunk.clock.lengths.tolist() == other.trunk.clock.lengths.tolist()
    for one, two in zip(own.trunk.blocks, other.trunk.blocks, strict=True):
        for name in {"matrix", "total", "scale", "tokens"} & {*vars(one)}:
            torch.testing.assert_close(getattr(one, name), getattr(two, name), **CLOSE)


@pytest.mark.parametrize("lengths", [[1], [70], [20] * 8, [1, 3, 70, 9, 2, 2, 65, 5], [4] * 20])
@pytest.mark.parametrize("kind", SETTINGS)
def test_a_program_gives_what_layers_give(kind, lengths, runs):
    model, prompts = gpt(kind), prompts_of(*lengths)
    rest = torch.randint(48, (len(lengths), 8))
    expected, before = stepped(model, after(model, prompts), rest, "reference")
    state = after(model, prompts)
    runs.clear()
    found, own = stepped(model, state, rest)
    assert len(runs) == 8
    torch.testing.assert_close(found, expected, **CLOSE)
    assert_same_state(own, before)


@pytest.mark.parametrize("kind", SETTINGS)
def test_several_tokens_at_once_between_steps(kind):
    model, rest = gpt(kind), torch.randint(48, (3, 40))
    with torch.no_grad():
        expected = model(rest).logits
        state, found, at = model.start(3), [], 0
        for size in (1, 1, 7, 1, 1, 1, 20, 1, 7):
            output = model(rest[:, at : at + size], state)
            state, at = output.state, at + size
            found.append(output.logits)
    torch.testing.assert_close(torch.cat(found, dim=1), expected, **CLOSE)


@pytest.mark.parametrize("kind", ["linear", "retention", "all kinds"])
def test_forks_rows_and_joined_states_do_not_disturb_each_other(kind):
    model, prompts = gpt(kind), prompts_of(5, 9)
    left, right, last = torch.randint(48, (3, 2, 6))
    state = after(model, prompts)
    _, state = stepped(model, state, last[:, :3])  # the program has written it
    kept = state.fork()
    turned = state.fork().rows(torch.tensor([1, 0, 1]))
    _, one = stepped(model, state, left)
    found_right, other = stepped(model, kept.fork(), right)
    both = type(one).joined([one.fork(), other.fork()])
    found_both, _ = stepped(model, both, torch.cat([last, left]))
    found_left, _ = stepped(model, one, last)
    found_turned, _ = stepped(model, turned, left[[1, 0, 1]])
    found_kept, _ = stepped(model, kept, right)

    def expected(*parts):
        return stepped(model, after(model, prompts), torch.cat([last[:, :3], *parts], 1), "reference")[0]

    torch.testing.assert_close(found_right, expected(right)[:, 3:], **CLOSE)
    torch.testing.assert_close(found_kept, expected(right)[:, 3:], **CLOSE)
    torch.testing.assert_close(found_turned, expected(left)[[1, 0, 1], 3:], **CLOSE)
    torch.testing.assert_close(found_left, expected(left, last)[:, 9:], **CLOSE)
    wanted = torch.cat([expected(left, last)[:, 9:], expected(right, left)[:, 9:]])
    torch.testing.assert_close(found_both, wanted, **CLOSE)


@pytest.mark.parametrize("kind", ["linear", "gated-linear"])
def test_a_step_leaves_the_state_before_it(kind):
    model, rest = gpt(kind), torch.randint(48, (2, 5))
    state = after(model, prompts_of(5, 5))
    for token in rest.split(1, 1):
        before = [one.clone() for _, one in state.tensors()]
        logits, following = stepped(model, state, token)
        assert all(torch.equal(one, now) for one, (_, now) in zip(before, state.tensors(), strict=True))
        again, _ = stepped(model, state, token)
        assert torch.equal(logits, again)
        state = following
    expected, _ = stepped(model, after(model, prompts_of(5, 5)), rest, "reference")
    torch.testing.assert_close(logits, expected[:, -1:], **CLOSE)


@pytest.mark.parametrize("kind", ["linear", "linear and full"])
def test_an_interrupted_step_can_be_repeated(kind, monkeypatch):
    model, rest, run = gpt(kind), torch.randint(48, (2, 8)), DecodeRunner.run_groups

    def interrupted(*given):
        run(*given)
        raise KeyboardInterrupt

    found, state = [], model.start(2)
    for at, token in enumerate(rest.split(1, 1)):
        if at % 3 == 2:
            with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                patch.setattr(DecodeRunner, "run_groups", interrupted)
                stepped(model, state, token)
        logits, state = stepped(model, state, token)
        found.append(logits)
    expected, _ = stepped(model, model.start(2), rest, "reference")
    torch.testing.assert_close(torch.cat(found, 1), expected, **CLOSE)


@pytest.mark.skipif(bool(os.environ.get("ENSUE_GUARD_PAGES")), reason="every step has memory of its own there")
def test_two_memories_take_turns_until_the_text_ends():
    model, rest = gpt("linear"), torch.randint(48, (2, 6))
    _, state = stepped(model, after(model, prompts_of(5, 5)), rest[:, :1])
    places = []
    for token in rest.split(1, 1):
        _, state = stepped(model, state, token)
        places.append([one.matrix.data_ptr() for one in state.trunk.blocks])
    assert places[0] == places[2] == places[4] != places[1] == places[3] == places[5]
    last = model._steps.last
    assert len(last.spare) == 2
    del state
    assert not last.spare


def test_texts_in_turns_do_not_disturb_each_other():
    model, texts = gpt("linear"), torch.randint(48, (3, 1, 12))
    states, found = [model.start(1) for _ in texts], [[], [], []]
    for at in range(0, 12, 2):
        for number, text in enumerate(texts):
            logits, states[number] = stepped(model, states[number], text[:, at : at + 2])
            found[number].append(logits)
    for text, own in zip(texts, found):
        expected, _ = stepped(model, model.start(1), text, "reference")
        torch.testing.assert_close(torch.cat(own, 1), expected, **CLOSE)


@pytest.mark.parametrize("kind", ["linear", "retention"])
def test_a_state_of_a_graph_stays_as_it_is(kind):
    gradients = []
    for steps in (False, True):
        model, tokens = gpt(kind), torch.arange(12).view(2, 6)
        state = model(tokens).state
        if steps:
            stepped(model, state, tokens)
        model(tokens, state).logits.square().sum().backward()
        gradients.append(model.blocks[0].attention.project.weight.grad)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("kind", ["linear", "all kinds"])
def test_threads_do_not_change_the_output(kind):
    model, rest = gpt(kind), torch.randint(48, (3, 5))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(stepped(model, model.start(3), rest)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("kind", ["linear", "gated-linear", "linear and full"])
def test_beams(kind):
    model, found = gpt(kind), []
    for kernel in ("reference", "auto"):
        with torch.no_grad(), use(kernel, "decode"):
            state = model(torch.arange(10).view(2, 5)).state
            how = Search(beam=4, length="none", nbest=4)
            found.append(beam_search(model, state, 3, end=None, longest=12, how=how))
    for one, other in zip(*found, strict=True):
        assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]


@pytest.mark.parametrize("attention", ["linear", "linear,full"])
def test_a_decoder_with_cross_attention(attention, runs):
    torch.manual_seed(0)
    sizes = {"source_vocabulary": 20, "vocabulary": 48, "layers": 2, "heads": 2, "hidden": 64}
    model = Transformer(TransformerConfig(**sizes, attention=attention)).eval()
    source, lengths, rest = torch.randint(20, (3, 7)), torch.tensor([7, 2, 5]), torch.randint(48, (3, 6))
    with torch.no_grad():
        expected, _ = stepped(model, model.start(source, lengths), rest, "reference")
        found, _ = stepped(model, model.start(source, lengths), rest)
    assert len(runs) == 6
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("attention", ["linear", "retention"])
@pytest.mark.parametrize("bits", [4, 8])
def test_weights_of_few_bits_and_adapters(attention, bits, runs):
    torch.manual_seed(0)
    sizes = {"vocabulary": 96, "layers": 2, "heads": 2, "hidden": 64, "inner": 96, "context": 64}
    model = LlamaLanguageModel(LlamaConfig(**sizes, attention=attention)).eval()
    model, rest = with_bits(model, bits), torch.randint(96, (2, 6))
    assert adapt(model, 2, 4.0, lambda name: name != "head")
    model.eval()
    expected, _ = stepped(model, model.start(2), rest, "reference")
    found, _ = stepped(model, model.start(2), rest)
    assert len(runs) == 6
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0.01)  # the program rounds inputs to 16 bits


@pytest.mark.parametrize("kind", ["linear", "gated-linear"])
def test_large_numbers(kind):
    model = gpt(kind)
    with torch.no_grad():
        for block in model.blocks:
            block.attention.project.weight.mul_(200)
            if kind == "gated-linear":
                block.attention.decay_out.bias.copy_(torch.linspace(-200, 200, 64))
    rest = torch.randint(48, (2, 12))
    expected, before = stepped(model, model.start(2), rest, "reference")
    found, own = stepped(model, model.start(2), rest)
    assert expected.isfinite().all()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    for one, other in zip(own.trunk.blocks, before.trunk.blocks, strict=True):
        torch.testing.assert_close(one.matrix, other.matrix, atol=1e-2, rtol=1e-4)


@pytest.mark.parametrize("attention", ["performer", "linear,mamba", "linear+full"])
def test_what_has_no_instruction_runs_layer_by_layer(attention, runs):
    model = gpt("linear", attention=attention)
    assert stepped(model, model.start(2), torch.randint(48, (2, 3)))[0].isfinite().all()
    assert not runs


def test_a_double_model_and_a_narrow_head_run_layer_by_layer(runs):
    for model in (gpt("linear").double(), gpt("linear", hidden=32, heads=8)):
        assert stepped(model, model.start(2), torch.randint(48, (2, 3)))[0].isfinite().all()
    assert not runs


@pytest.mark.parametrize("decays", ["none", "heads", "channels"])
@pytest.mark.parametrize("features", ["", "elu"])
@pytest.mark.parametrize("d", [16, 80])
def test_the_instruction_is_the_equation(decays, features, d):
    torch.manual_seed(0)
    R, H, G = 3, 4, 2
    width = (H + 2 * G) * d
    program = DecodeProgram()
    first = program.buffer(width + H * d)
    logs, u = -torch.rand(1, H, 1, 1), first[:, width:]
    how = {"none": {}, "heads": {"decays": logs}, "channels": {"decays": u, "roots": 3}}[decays]
    y = program.recur(first[:, :width], H, G, H * d, features, **how)
    identity = nn.Linear(H * d, H * d, bias=False)
    identity.weight.data = torch.eye(H * d)
    program.linear(identity, y, answer=True)
    x, matrix, total = 2 * torch.randn(R, width + H * d), torch.randn(R, H, d, d), torch.rand(R, H, d)
    x[:, width:] *= 10
    into = torch.full_like(matrix, float("nan")), torch.full_like(total, float("nan"))
    views = [MatrixView((matrix, total), into)]
    found = DecodeRunner(program, first).run_groups(x, group_matrices([program.layers[0].number], views))
    q, k, v, gate = (one.view(R, -1, d) for one in x.split([H * d, G * d, G * d, H * d], -1))
    k, v = (one.repeat_interleave(H // G, 1) for one in (k, v))
    g = {
        "none": torch.ones(()),
        "heads": logs.view(H, 1).exp(),
        "channels": torch.maximum(gate.sigmoid() ** 0.125, torch.tensor(LEAST).exp()),
    }[decays]
    share = 1 / d**0.5
    if features:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        share = 1 / ((total + k) * q).sum(-1, keepdim=True)
        torch.testing.assert_close(into[1], total + k, **CLOSE)
    after = (g * torch.ones_like(k))[..., None] * matrix + k[..., None] * v[:, :, None]
    torch.testing.assert_close(into[0], after, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(found, ((q[:, :, None] @ after)[:, :, 0] * share).flatten(1), atol=1e-4, rtol=1e-4)


def test_widths_that_do_not_match_are_refused():
    program = DecodeProgram()
    with pytest.raises(NotCompilable):
        program.recur(program.buffer(100), 2, 2, 64)
    with pytest.raises(NotCompilable):
        program.recur(program.buffer(192), 2, 2, 64, decays=torch.zeros(1, 4, 1, 1))
