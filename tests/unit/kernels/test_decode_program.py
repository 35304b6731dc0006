"""A decode program gives what the operations give, for every block, kind of position and number of rows."""

import copy
import threading
import weakref
from dataclasses import replace

import pytest
import torch
from torch import nn

from ensue.kernels.decode_program import LINEAR, MULTIPLY, CacheView, DecodeProgram, NotCompilable
from ensue.kernels.decode_runner import DecodeRunner, Fingerprint
from ensue.kernels.int8 import QuantisedLinear, quantise
from ensue.kernels.kernel import use
from ensue.kernels.threads import torch_threads
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn import decode_compiler
from ensue.nn.decode_compiler import _rotation
from ensue.nn.feed_forward import FeedForward
from ensue.nn.positions import Rotary
from ensue.nn.trunk import Clock
from ensue.search.beam import Search, beam_search

needs_threads = pytest.mark.skipif(torch_threads() is None, reason="torch has other threads than OpenMP's here")


def gpt(**more):
    torch.manual_seed(0)
    settings = {"vocabulary": 77, "layers": 2, "heads": 2, "hidden": 64, "context": 40} | more
    return GPTLanguageModel(GPTConfig(**settings)).eval()


@torch.no_grad()
def stepped(model, prompts, rest, kernel):
    """Logits of each of ``rest`` (R, T), read token by token after prompts of different lengths."""
    with use(kernel, "decode"):
        return read(model, prompts, rest)


@torch.no_grad()
def read(model, prompts, rest):
    states = [model(prompt[None], model.start(1), want=("last",)).state for prompt in prompts]
    state = type(states[0]).joined(states) if len(states) > 1 else states[0]
    found = []
    for token in rest.unbind(1):
        output = model(token[:, None], state, want=("last",))
        state = output.state
        found.append(output.logits)
    return torch.cat(found, dim=1), state


@needs_threads
@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["rotary", "learned", "sinusoidal", "none"])
@pytest.mark.parametrize("rows", [1, 2, 5, 16, 21])
def test_a_program_gives_what_operations_give(norm, positions, rows):
    model = gpt(norm=norm, positions=positions)
    prompts = [torch.randint(77, (3 + row % 4,)) for row in range(rows)]
    rest = torch.randint(77, (rows, 30))  # more than fit into the buffers at first
    expected, before = stepped(model, prompts, rest, "reference")
    found, after = stepped(model, prompts, rest, "auto")
    assert model._steps.programs.runners
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    assert after.tokens.tolist() == before.tokens.tolist()
    for own, other in zip(after.trunk.blocks, before.trunk.blocks):
        assert (own.used, own.even, own.lengths.tolist()) == (other.used, other.even, other.lengths.tolist())
        for row, length in enumerate(own.lengths.tolist()):
            torch.testing.assert_close(own.keys[row, :, :length], other.keys[row, :, :length], atol=2e-5, rtol=1e-5)
            torch.testing.assert_close(own.values[row, :, :length], other.values[row, :, :length], atol=2e-5, rtol=1e-5)


@needs_threads
def test_wide_layers_and_a_vocabulary_of_any_size():
    for vocabulary in (16, 33, 95):
        model = gpt(vocabulary=vocabulary, hidden=128, heads=1, layers=1)
        prompts, rest = [torch.randint(16, (3,)) for _ in range(3)], torch.randint(16, (3, 4))
        expected, _ = stepped(model, prompts, rest, "reference")
        torch.testing.assert_close(stepped(model, prompts, rest, "auto")[0], expected, atol=2e-5, rtol=1e-5)


@needs_threads
def test_a_row_does_not_depend_on_those_beside_it():
    model = gpt()
    prompts, rest = [torch.randint(77, (4,)) for _ in range(7)], torch.randint(77, (7, 5))
    together, _ = stepped(model, prompts, rest, "auto")
    for row in range(7):
        alone, _ = stepped(model, prompts[row : row + 1], rest[row : row + 1], "auto")
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)


@needs_threads
def test_threads_do_not_change_the_output():
    model = gpt()
    prompts, rest = [torch.randint(77, (4,)) for _ in range(3)], torch.randint(77, (3, 5))
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3, 7):  # also more than there are cores, and than some layers have chunks
            torch.set_num_threads(threads)
            found.append(stepped(model, prompts, rest, "auto")[0])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


@needs_threads
def test_weights_that_change_or_move_are_used():
    model = gpt()
    prompts, rest = [torch.randint(77, (4,))], torch.randint(77, (1, 2))
    stepped(model, prompts, rest, "auto")
    with torch.no_grad():
        model.blocks[0].feed.up.weight.mul_(2)
    expected = stepped(model, prompts, rest, "reference")[0]
    torch.testing.assert_close(stepped(model, prompts, rest, "auto")[0], expected, atol=2e-5, rtol=1e-5)
    model.blocks[1].feed.up.weight = nn.Parameter(model.blocks[1].feed.up.weight * 3)
    expected = stepped(model, prompts, rest, "reference")[0]
    torch.testing.assert_close(stepped(model, prompts, rest, "auto")[0], expected, atol=2e-5, rtol=1e-5)
    other = copy.deepcopy(model)
    with torch.no_grad():
        other.embed.weight.mul_(2)
    torch.testing.assert_close(stepped(model, prompts, rest, "auto")[0], expected, atol=2e-5, rtol=1e-5)


@needs_threads
def test_a_hook_sees_the_operations():
    model, seen = gpt(), []
    model.blocks[1].attention.register_forward_hook(lambda *_: seen.append(1))
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert len(seen) == 4  # the prompt, and each token


@pytest.fixture(params=["versions of dicts", "looks at every object"])
def noticing(request, monkeypatch):
    """How changes of a model are noticed: by versions of dicts where Python has them, else by looking."""
    if request.param == "looks at every object":
        for module in ("decode_runner", "dict_versions"):
            monkeypatch.setattr(f"ensue.kernels.{module}.available", lambda: False)


@needs_threads
@pytest.mark.parametrize(
    "change",
    [
        lambda model, seen: model.blocks[1].attention.register_forward_hook(lambda *_: seen.append(1)),
        lambda model, seen: model.blocks[0].feed.register_forward_pre_hook(lambda *_: seen.append(1)),
        lambda model, seen: setattr(model.blocks[0].feed, "forward", lambda x: (seen.append(1), x)[1]),
    ],
)
def test_what_is_hooked_between_steps_runs(noticing, change):
    model, seen = gpt(), []
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert model._steps.programs.runners
    change(model, seen)
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert len(seen) == 4  # the prompt, and each token


@needs_threads
def test_a_part_in_training_mode_between_steps_ends_the_program(noticing):
    model = gpt()
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    model.blocks[1].feed.train()
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert not model._steps.programs.runners
    model.eval()
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert model._steps.programs.runners


@needs_threads
def test_rotary_positions_of_later_blocks_are_those_of_the_reference():
    model = gpt(context=300)
    prompts, rest = [torch.randint(77, (120,))], torch.randint(77, (1, 150))
    expected, _ = stepped(model, prompts, rest, "reference")
    found, _ = stepped(model, prompts, rest, "auto")
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


class Contested(dict):
    """Angles of which another thread needs a block of its own whenever they were looked at."""

    def get(self, key, default=None):
        found = super().get(key, default)
        self.clear()
        return found

    def __contains__(self, key):
        return self.get(key) is not None


def test_angles_are_those_of_the_block_also_where_another_thread_needs_another():
    rotary, x = Rotary(32), torch.zeros(1, 1, 64)
    for used in (5, 6, 200, 6):
        clock = Clock(torch.tensor([used]), used)
        known = Contested({rotary: (0, *rotary(torch.arange(128)[None], x))})
        found = _rotation(rotary, clock.positions(1), x, clock, known)
        expected = rotary(clock.positions(1), x)
        assert all(torch.equal(own, other) for own, other in zip(found, expected))


@needs_threads
def test_a_default_device_does_not_matter():
    model = gpt()
    prompts, rest = [torch.randint(77, (4,))], torch.randint(77, (1, 3))
    expected = stepped(model, prompts, rest, "reference")[0]
    with torch.no_grad():
        state = model(prompts[0][None], model.start(1), want=("last",)).state
        with torch.device("meta"):
            found = model(rest[:, :1], state, want=("last",)).logits
    torch.testing.assert_close(found, expected[:, :1], atol=2e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize("attention", ["local:span=11", "full,local:span=11"])
@pytest.mark.parametrize("rows", [1, 3])
def test_within_their_span_local_layers_run_by_program(attention, rows):
    model = gpt(attention=attention)
    prompts, rest = [torch.randint(77, (3 + row,)) for row in range(rows)], torch.randint(77, (rows, 25))
    expected, _ = stepped(model, prompts, rest, "reference")
    found, _ = stepped(model, prompts, rest, "auto")
    assert model._steps.programs.runners
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@needs_threads
def test_models_that_cannot_be_compiled_run_their_operations():
    for model in (
        gpt(hidden=40),
        gpt().double(),
        gpt(positions="alibi"),
    ):  # heads of 20; double precision; a score bias
        found, _ = stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
        assert not model._steps.programs.runners and found.isfinite().all()
    with pytest.raises(NotCompilable):
        DecodeProgram().linear(nn.Bilinear(16, 16, 16), torch.zeros(16, 16))
    with pytest.raises(NotCompilable):
        DecodeProgram().norm(nn.GroupNorm(1, 16), torch.zeros(16, 16))
    with pytest.raises(NotCompilable):
        DecodeProgram().linear(nn.Linear(24, 16), torch.zeros(16, 24))


@needs_threads
def test_under_autograd_and_in_training_no_program_runs():
    model = gpt()
    prompt, token = torch.randint(77, (1, 4)), torch.randint(77, (1, 1))
    output = model(token, model(prompt).state)
    assert not model._steps.programs.runners and output.logits.requires_grad
    with torch.no_grad():
        model.train()
        model(token, model(prompt).state)
    assert not model._steps.programs.runners


@needs_threads
def test_two_threads_may_step_the_same_model():
    model = gpt()
    prompts, rest = [torch.randint(77, (4,)) for _ in range(2)], torch.randint(77, (2, 20))
    expected = [stepped(model, prompts[row : row + 1], rest[row : row + 1], "auto")[0] for row in range(2)]
    found = {}

    def step(row):
        for _ in range(5):
            found[row] = stepped(model, prompts[row : row + 1], rest[row : row + 1], "auto")[0]

    threads = [threading.Thread(target=step, args=(row,)) for row in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[row], expected[row]) for row in range(2))


class Doubled(FeedForward):
    def forward(self, x):
        return 2 * super().forward(x)


class Negated(nn.Module):
    """Around a block: the same with another sign."""

    def __init__(self, inside):
        super().__init__()
        self.inside, self.attention = inside, inside.attention

    def forward(self, *given):
        y, *rest = self.inside(*given)
        return -y, *rest

    def start(self, rows):
        return self.inside.start(rows)


@needs_threads
@pytest.mark.parametrize(
    "change",
    [
        lambda model: setattr(model.blocks[0], "feed", Doubled(64, 256)),
        lambda model: model.blocks.__setitem__(1, Negated(model.blocks[1])),
        lambda model: setattr(model.blocks[0].feed, "forward", lambda x: x),
        lambda model: setattr(model, "head", nn.Linear(64, 200)),
    ],
)
def test_modules_that_were_replaced_are_used(noticing, change):
    prompts, rest = [torch.randint(77, (4,))], torch.randint(77, (1, 3))
    model = gpt()
    stepped(model, prompts, rest, "auto")
    change(model)
    model.eval()
    expected = stepped(model, prompts, rest, "reference")[0]
    torch.testing.assert_close(stepped(model, prompts, rest, "auto")[0], expected, atol=2e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize(
    "move",
    [
        lambda model: [setattr(one, "data", one * 2) for one in model.buffers() if one.is_floating_point()],
        lambda model: model.share_memory(),
    ],
)
def test_buffers_that_moved_are_not_read_where_they_were(noticing, move):
    model = quantise(gpt())
    prompts, rest = [torch.randint(77, (4,))], torch.randint(77, (1, 3))
    stepped(model, prompts, rest, "auto")
    known = model._steps.programs.found
    before = [one.data_ptr() for one in model.buffers()]
    move(model)
    assert before != [one.data_ptr() for one in model.buffers()] and not known.holds()
    expected = stepped(copy.deepcopy(model), prompts, rest, "auto")[0]
    assert torch.equal(stepped(model, prompts, rest, "auto")[0], expected)


@needs_threads
def test_a_change_is_noticed_also_if_looking_at_it_was_interrupted(noticing, monkeypatch):
    model = gpt()
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    known = model._steps.programs.found
    model.blocks[0].feed.register_forward_hook(lambda *_: None)

    def interrupted(_):
        raise KeyboardInterrupt

    with monkeypatch.context() as change, pytest.raises(KeyboardInterrupt):
        change.setattr(Fingerprint, "_looks_same", interrupted)
        known.holds()
    assert not known.holds()


@needs_threads
def test_no_program_runs_where_a_module_is_in_training_mode():
    model = gpt(dropout=0.5)
    model.blocks[0].dropout.train()
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert not model._steps.programs.runners


@needs_threads
def test_rows_that_do_not_match_the_state_are_refused():
    model = gpt()
    with torch.no_grad():
        state = model(torch.randint(77, (3, 4))).state
        with pytest.raises(RuntimeError):
            model(torch.randint(77, (4, 1)), state, want=("last",))


@needs_threads
def test_states_from_autograd_can_be_continued():
    model = gpt()
    tokens, lengths = torch.randint(77, (3, 6)), torch.tensor([6, 2, 4])
    found = []
    for kernel in ("reference", "auto"):
        state = model(tokens, lengths=lengths).state.detach()
        with torch.no_grad(), use(kernel, "decode"):
            found.append(model(tokens[:, :1], state, want=("last",)).logits)
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=1e-5)


@needs_threads
def test_inference_mode_and_default_dtype_do_not_matter():
    model = gpt()
    prompts, rest = [torch.randint(77, (4,))], torch.randint(77, (1, 3))
    expected = stepped(model, prompts, rest, "reference")[0]
    with torch.inference_mode():
        stepped(model, prompts, rest, "auto")
    torch.testing.assert_close(stepped(model, prompts, rest, "auto")[0], expected, atol=2e-5, rtol=1e-5)
    other = copy.deepcopy(model)
    torch.set_default_dtype(torch.float64)
    try:
        found = stepped(other, prompts, rest, "auto")[0]
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@needs_threads
def test_nan_stays_nan_with_int8_weights():
    layer = quantise(nn.Sequential(nn.Linear(64, 32)))[0]
    program = DecodeProgram()
    first = program.buffer(64)
    program.linear(layer, first, answer=True)
    x = torch.randn(3, 64)
    x[1, 5], x[2, 7] = float("nan"), float("inf")
    found = DecodeRunner(program, first).run(x, [])
    assert found[0].isfinite().all() and found[1:].isnan().all()


@needs_threads
def test_lengths_of_sources_may_be_int32():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(vocabulary=40, source_vocabulary=30, layers=1, hidden=32, heads=2)).eval()
    source, found = torch.randint(30, (3, 5)), []
    for kernel in ("reference", "auto"):
        with torch.no_grad(), use(kernel, "decode"):
            state = model.start(source, torch.tensor([5, 1, 3], dtype=torch.int32))
            found.append(model(torch.tensor([[1], [2], [3]]), state, want=("last",)).logits)
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=1e-5)


@needs_threads
def test_sources_of_another_type_are_kept_while_a_program_reads_them(monkeypatch):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(vocabulary=40, source_vocabulary=30, layers=2, hidden=32, heads=2)).eval()
    source, found, views, alive = torch.randint(30, (3, 5)), [], [], []

    def viewed(given, make=decode_compiler._source_views):
        made = make(given)
        views.extend(weakref.ref(one.keys) for one in made)
        return made

    def run(runner, x, groups, run=DecodeRunner.run_groups):
        alive.extend(view() is not None for view in views)
        return run(runner, x, groups)

    monkeypatch.setattr(decode_compiler, "_source_views", viewed)
    monkeypatch.setattr(DecodeRunner, "run_groups", run)
    for kernel, kind in (("reference", torch.float32), ("auto", torch.float64)):
        with torch.no_grad(), use(kernel, "decode"):
            state = model.start(source)
            state = replace(
                state, source=replace(state.source, parts=tuple(one.to(kind) for one in state.source.parts))
            )
            found.append(model(torch.tensor([[1], [2], [3]]), state, want=("last",)).logits)
    assert alive == [True, True]
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize("rows", [1, 3, 4, 9, 16, 17, 32, 47, 64, 80, 96, 112, 128])
def test_products_of_any_number_of_rows(rows):
    """Few rows or many, outputs that fill parts or do not, with what is added and f: as torch computes it."""
    torch.manual_seed(rows)
    layers = nn.Linear(144, 80), nn.Linear(80, 32), nn.Linear(32, 80), nn.Linear(80, 77, bias=False)
    program = DecodeProgram(16 if rows <= 16 else 128)
    first = program.buffer(144)
    h = program.linear(layers[0], first, "gelu")
    u = program.linear(layers[1], h, "relu")
    program.linear(layers[3], program.linear(layers[2], u, onto=h), answer=True)
    x = torch.randn(rows, 144)
    with torch.no_grad():
        expected = nn.functional.gelu(layers[0](x), approximate="tanh")
        expected = layers[3](expected + layers[2](layers[1](expected).relu()))
    runner = DecodeRunner(program, first)
    for _ in range(2):  # workspaces are used again
        torch.testing.assert_close(runner.run(x, []), expected, atol=1e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize("rows", [1, 5, 8, 19, 40])
def test_int8_sums_of_any_size_are_exact(rows):
    """48 inputs and 77 outputs: whole numbers that need no rounding, so that every sum is known."""
    torch.manual_seed(rows)
    whole = torch.randint(-127, 128, (77, 48)).float()
    whole[:, 0] = 127.0  # so that each scale is 1
    layer = QuantisedLinear(whole, torch.arange(77.0))
    x = torch.randint(-100, 101, (rows, 48)).float()
    x[:, 1] = float(layer.most)  # so that each row's size is 1
    program = DecodeProgram(16 if rows <= 16 else 128)
    first = program.buffer(48)
    program.linear(layer, first, answer=True)
    answers = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            answers.append(DecodeRunner(program, first).run(x, []))
        finally:
            torch.set_num_threads(before)
    torch.testing.assert_close(answers[0], x @ whole.T + torch.arange(77.0), rtol=1e-6, atol=0.5)
    assert torch.equal(*answers)


def test_layers_of_another_width_are_refused():
    program = DecodeProgram()
    with pytest.raises(NotCompilable, match="width"):
        program.linear(nn.Linear(32, 16), program.buffer(64))
    with pytest.raises(NotCompilable, match="width"):
        program.norm(nn.LayerNorm(32), program.buffer(64))


@needs_threads
def test_int8_sums_do_not_overflow():
    """Weights that are all as large as can be: x gets fewer bits, and no sum runs over."""
    layer = QuantisedLinear(torch.ones(32, 4096), None)
    assert layer.most == (2**31 - 1) // (127 * 4096)
    program = DecodeProgram()
    first = program.buffer(4096)
    program.linear(layer, first, answer=True)
    for rows in (1, 8, 13):
        found = DecodeRunner(program, first).run(torch.full((rows, 4096), 2.0), [])
        torch.testing.assert_close(found, torch.full((rows, 32), 8192.0), rtol=1e-5, atol=0.0)


@needs_threads
@pytest.mark.parametrize("rows", [1, 4, 6, 8, 15, 20, 80])
def test_int8_is_close_to_float32(rows):
    torch.manual_seed(1)
    exact = nn.Linear(256, 96)
    layer = quantise(nn.Sequential(exact))[0]
    program = DecodeProgram(16 if rows <= 16 else 128)
    first = program.buffer(256)
    program.linear(layer, first, answer=True)
    x = torch.randn(rows, 256) * torch.logspace(-3, 3, rows)[:, None]  # each row has a size of its own
    found = DecodeRunner(program, first).run(x, [])
    rounded = x @ layer.weight.T + exact.bias  # only the weights have eight bits
    size = x.abs().amax(1, keepdim=True)
    assert ((found - rounded).abs() <= 3e-4 * size + 1e-5).all()
    with torch.no_grad():
        assert ((found - exact(x)).norm(dim=1) <= 0.02 * exact(x).norm(dim=1)).all()


@needs_threads
def test_an_int8_model_decodes_by_program_and_stays_close():
    model = gpt(hidden=128, vocabulary=300)
    small = quantise(model)
    prompts, rest = [torch.randint(300, (4,)) for _ in range(3)], torch.randint(300, (3, 6))
    expected, _ = stepped(model, prompts, rest, "auto")
    found, _ = stepped(small, prompts, rest, "auto")
    assert small._steps.programs.runners[16] is not model._steps.programs.runners[16]
    scales = [code[7] for code in small._steps.programs.runners[16].program.code if code[0] == LINEAR]
    assert scales and all(scales)
    assert ((found - expected).norm(dim=-1) < 0.05 * expected.norm(dim=-1)).all()


@needs_threads
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_beams_of_a_translator_find_the_same_by_program(norm):
    torch.manual_seed(0)
    sizes = {"vocabulary": 40, "source_vocabulary": 30, "layers": 2, "hidden": 64, "heads": 2}
    model = Transformer(TransformerConfig(**sizes, norm=norm, tied="target")).eval()
    source, lengths = torch.randint(30, (4, 7)), torch.tensor([7, 3, 5, 1])
    found = {}
    for kernel in ("reference", "auto"):
        for beam in (1, 3, 5):
            how, longest = Search(beam=beam, length="none", nbest=beam), torch.tensor([9, 30, 12, 20])
            with torch.no_grad(), use(kernel, "decode"):
                state = model.start(source, lengths)
                found[kernel, beam] = beam_search(model, state, 0, end=1, longest=longest, how=how)
    assert set(model._steps.programs.runners) == {16, 128}
    for beam in (1, 3, 5):
        for one, other in zip(found["reference", beam], found["auto", beam], strict=True):
            assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]
            assert [each.score for each in one.hypotheses] == pytest.approx(
                [each.score for each in other.hypotheses], abs=1e-4
            )


@needs_threads
def test_beams_of_a_language_model_leave_a_shared_cache_that_grows_too_large(monkeypatch):
    model = gpt(context=64)
    for module in ("mixers.full", "key_value_cache"):
        monkeypatch.setattr(f"ensue.nn.{module}.SHARED", 40)
    found = []
    for kernel in ("reference", "auto"):
        how = Search(beam=4, length="none", nbest=4)
        with torch.no_grad(), use(kernel, "decode"):
            state = model(torch.randint(77, (2, 5), generator=torch.Generator().manual_seed(1))).state
            found.append(beam_search(model, state, 3, end=None, longest=25, how=how))
    for one, other in zip(*found, strict=True):
        assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]


@needs_threads
def test_rows_can_attend_to_a_cache_by_index():
    torch.manual_seed(0)
    query, keys, values = torch.randn(3, 32), torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
    index, lengths = torch.tensor([1, 0, 1]), torch.tensor([9, 4, 1])
    program = DecodeProgram()
    first = program.buffer(32)
    identity = nn.Linear(32, 32, bias=False)
    identity.weight.data = torch.eye(32)
    program.linear(identity, program.attend(first, 2, 2, 32, append=False), answer=True)
    found = DecodeRunner(program, first).run(query, [CacheView(keys, values, lengths, index)])
    for row in range(3):
        k, v = (part[index[row], :, : lengths[row]] for part in (keys, values))
        weights = (query[row].view(2, 1, 16) @ k.transpose(1, 2) / 4).softmax(-1)
        torch.testing.assert_close(found[row].view(2, 16), (weights @ v)[:, 0], atol=1e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize("rows", [1, 5, 16, 21])
@pytest.mark.parametrize(
    "more",
    [
        {"norm": "rms"},
        {"norm": "post-rms"},
        {"feed": "swiglu"},
        {"feed": "geglu"},
        {"feed": "swiglu", "bias": False},
        {"feed": "relu", "bias": False},
        {"heads": 4, "kv_heads": 1},
        {"heads": 4, "kv_heads": 2, "norm": "rms", "feed": "swiglu", "bias": False},  # Llama's block
    ],
    ids=str,
)
def test_llamas_parts_are_compiled(more, rows):
    model = gpt(**more)
    prompts = [torch.randint(77, (3 + row % 4,)) for row in range(rows)]
    rest = torch.randint(77, (rows, 30))
    expected, _ = stepped(model, prompts, rest, "reference")
    found, _ = stepped(model, prompts, rest, "auto")
    assert model._steps.programs.runners
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@needs_threads
def test_beams_share_a_cache_of_grouped_heads():
    model, found = gpt(heads=4, kv_heads=2, norm="rms"), []
    how = Search(beam=4, length="none", nbest=4)
    for kernel in ("reference", "auto"):
        with torch.no_grad(), use(kernel, "decode"):
            state = model(torch.randint(77, (2, 5), generator=torch.Generator().manual_seed(1))).state
            found.append(beam_search(model, state, 3, end=None, longest=25, how=how))
    for one, other in zip(*found, strict=True):
        assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]


@needs_threads
@pytest.mark.parametrize("rows", [1, 3, 16, 40])
def test_rms_norm_and_a_gate_are_the_equations(rows):
    torch.manual_seed(rows)
    norm, gate, up = nn.RMSNorm(48, eps=1e-6), nn.Linear(48, 80, bias=False), nn.Linear(48, 80)
    down = nn.Linear(80, 48, bias=False)
    nn.init.normal_(norm.weight)
    program = DecodeProgram(16 if rows <= 16 else 128)
    first = program.buffer(48)
    z = program.norm(norm, first)
    h = program.linear(gate, z, "silu")
    program.linear(up, z, onto=h, combine=MULTIPLY)
    program.linear(down, h, answer=True)
    x = 3 * torch.randn(rows, 48)
    with torch.no_grad():
        n = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight
        u = n @ gate.weight.T
        expected = (u * u.sigmoid() * (n @ up.weight.T + up.bias)) @ down.weight.T
    torch.testing.assert_close(DecodeRunner(program, first).run(x, []), expected, atol=1e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize(("heads", "kv_heads"), [(6, 6), (6, 2), (6, 1)])
def test_several_query_heads_share_a_key_value_head(heads, kv_heads):
    torch.manual_seed(0)
    d, rows = 16, 5
    width = heads * d
    program = DecodeProgram()
    first = program.buffer(width + 2 * kv_heads * d)
    y = program.attend(first, heads, kv_heads, width, append=True)
    identity = nn.Linear(width, width, bias=False)
    identity.weight.data = torch.eye(width)
    program.linear(identity, y, answer=True)
    x, lengths = torch.randn(rows, width + 2 * kv_heads * d), torch.tensor([3, 0, 7, 1, 5])
    keys, values = torch.randn(rows, kv_heads, 8, d), torch.randn(rows, kv_heads, 8, d)
    before = keys.clone()
    found = DecodeRunner(program, first).run(x, [CacheView(keys, values, lengths)])
    q, k, v = x.split([width, kv_heads * d, kv_heads * d], dim=1)
    for r, size in enumerate(lengths.tolist()):
        assert torch.equal(keys[r, :, size], k[r].view(kv_heads, d)) and torch.equal(
            keys[r, :, :size], before[r, :, :size]
        )
        assert torch.equal(values[r, :, size], v[r].view(kv_heads, d))
        seen = [one[r, :, : size + 1].repeat_interleave(heads // kv_heads, 0) for one in (keys, values)]
        weights = (q[r].view(heads, 1, d) @ seen[0].transpose(1, 2) / d**0.5).softmax(-1)
        torch.testing.assert_close(found[r].view(heads, d), (weights @ seen[1])[:, 0], atol=1e-5, rtol=1e-5)
