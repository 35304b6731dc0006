"""A tape must say what operations one by one say, for every order of norm, kind of position and number of rows."""

import copy
import threading

import pytest
import torch
from torch import nn

from ensue.kernels import decode_program as tapes
from ensue.kernels.decode_program import LINEAR, Memory, Player, Tape, Unwritten
from ensue.kernels.int8 import QuantisedLinear, quantise
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.feed_forward import FeedForward
from ensue.search.beam import Search, beam_search

needs_threads = pytest.mark.skipif(tapes.torch_threads() is None, reason="torch has other threads than OpenMP's here")


def gpt(**more):
    torch.manual_seed(0)
    settings = {"vocabulary": 77, "layers": 2, "heads": 2, "hidden": 64, "context": 40} | more
    return GPTLanguageModel(GPTConfig(**settings)).eval()


@torch.no_grad()
def stepped(model, prompts, rest, kernel):
    """Logits of each of ``rest`` (R, T), read token by token after prompts of different lengths."""
    model._steps.kernel = kernel
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
def test_a_tape_says_what_operations_one_by_one_say(norm, positions, rows):
    model = gpt(norm=norm, positions=positions)
    prompts = [torch.randint(77, (3 + row % 4,)) for row in range(rows)]
    rest = torch.randint(77, (rows, 30))  # more than fit into the room at first
    expected, before = stepped(model, prompts, rest, "reference")
    found, after = stepped(model, prompts, rest, "auto")
    assert model._steps.players
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
def test_threads_do_not_change_what_is_said():
    model = gpt()
    prompts, rest = [torch.randint(77, (4,)) for _ in range(3)], torch.randint(77, (3, 5))
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(stepped(model, prompts, rest, "auto")[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@needs_threads
def test_weights_that_change_or_move_are_seen():
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
def test_who_looks_on_sees_the_operations():
    model, seen = gpt(), []
    model.blocks[1].attention.register_forward_hook(lambda *_: seen.append(1))
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert len(seen) == 4  # the prompt, and each token


@needs_threads
def test_what_a_tape_cannot_hold_is_read_one_by_one():
    for model in (gpt(hidden=40), gpt().double()):  # heads of 20; double precision
        found, _ = stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
        assert not model._steps.players and found.isfinite().all()
    with pytest.raises(Unwritten):
        Tape().linear(nn.Bilinear(16, 16, 16), torch.zeros(16, 16))
    with pytest.raises(Unwritten):
        Tape().norm(nn.RMSNorm(16), torch.zeros(16, 16))
    with pytest.raises(Unwritten):
        Tape().linear(nn.Linear(24, 16), torch.zeros(16, 24))


@needs_threads
def test_under_autograd_and_while_training_nothing_is_played():
    model = gpt()
    prompt, token = torch.randint(77, (1, 4)), torch.randint(77, (1, 1))
    output = model(token, model(prompt).state)
    assert not model._steps.players and output.logits.requires_grad
    with torch.no_grad():
        model.train()
        model(token, model(prompt).state)
    assert not model._steps.players


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


class Turned(nn.Module):
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
        lambda model: model.blocks.__setitem__(1, Turned(model.blocks[1])),
        lambda model: setattr(model.blocks[0].feed, "forward", lambda x: x),
        lambda model: setattr(model, "head", nn.Linear(64, 200)),
    ],
)
def test_parts_that_somebody_changed_are_not_passed_by(change):
    prompts, rest = [torch.randint(77, (4,))], torch.randint(77, (1, 3))
    model = gpt()
    stepped(model, prompts, rest, "auto")
    change(model)
    model.eval()
    expected = stepped(model, prompts, rest, "reference")[0]
    torch.testing.assert_close(stepped(model, prompts, rest, "auto")[0], expected, atol=2e-5, rtol=1e-5)


@needs_threads
def test_a_part_that_trains_trains():
    model = gpt(dropout=0.5)
    model.blocks[0].dropout.train()
    stepped(model, [torch.randint(77, (4,))], torch.randint(77, (1, 3)), "auto")
    assert not model._steps.players


@needs_threads
def test_rows_that_are_not_those_of_the_state_are_refused_as_ever():
    model = gpt()
    with torch.no_grad():
        state = model(torch.randint(77, (3, 4))).state
        with pytest.raises(RuntimeError):
            model(torch.randint(77, (4, 1)), state, want=("last",))


@needs_threads
def test_states_that_autograd_left_are_gone_on_with():
    model = gpt()
    tokens, lengths = torch.randint(77, (3, 6)), torch.tensor([6, 2, 4])
    found = []
    for kernel in ("reference", "auto"):
        model._steps.kernel = kernel
        state = model(tokens, lengths=lengths).state.detach()
        with torch.no_grad():
            found.append(model(tokens[:, :1], state, want=("last",)).logits)
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=1e-5)


@needs_threads
def test_modes_and_defaults_of_torch_do_not_matter():
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
def test_what_is_no_number_stays_none_in_eight_bits():
    layer = quantise(nn.Sequential(nn.Linear(64, 32)))[0]
    tape = Tape()
    first = tape.space(64)
    tape.linear(layer, first, answer=True)
    x = torch.randn(3, 64)
    x[1, 5], x[2, 7] = float("nan"), float("inf")
    found = Player(tape, first, []).play(x, [])
    assert found[0].isfinite().all() and found[1:].isnan().all()


@needs_threads
def test_sources_are_read_whatever_their_lengths_are_written_in():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(vocabulary=40, source_vocabulary=30, layers=1, hidden=32, heads=2)).eval()
    source, found = torch.randint(30, (3, 5)), []
    for kernel in ("reference", "auto"):
        model._steps.kernel = kernel
        with torch.no_grad():
            state = model.start(source, torch.tensor([5, 1, 3], dtype=torch.int32))
            found.append(model(torch.tensor([[1], [2], [3]]), state, want=("last",)).logits)
    torch.testing.assert_close(found[1], found[0], atol=2e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize("rows", [1, 3, 4, 9, 16, 17, 32, 47, 64, 80, 96, 112, 128])
def test_products_of_any_number_of_rows(rows):
    """Few rows or many, outputs that fill parts or do not, with what is added and f: as torch computes it."""
    torch.manual_seed(rows)
    layers = nn.Linear(144, 80), nn.Linear(80, 32), nn.Linear(32, 80), nn.Linear(80, 77, bias=False)
    tape = Tape(16 if rows <= 16 else 128)
    first = tape.space(144)
    h = tape.linear(layers[0], first, "gelu")
    u = tape.linear(layers[1], h, "relu")
    tape.linear(layers[3], tape.linear(layers[2], u, onto=h), answer=True)
    x = torch.randn(rows, 144)
    with torch.no_grad():
        expected = nn.functional.gelu(layers[0](x), approximate="tanh")
        expected = layers[3](expected + layers[2](layers[1](expected).relu()))
    player = Player(tape, first, [])
    for _ in range(2):  # room is used again
        torch.testing.assert_close(player.play(x, []), expected, atol=1e-5, rtol=1e-5)


@needs_threads
@pytest.mark.parametrize("rows", [1, 5, 8, 19, 40])
def test_eight_bits_of_ragged_sizes_are_exact_sums(rows):
    """48 inputs and 77 outputs: whole numbers that need no rounding, so that every sum is known."""
    torch.manual_seed(rows)
    whole = torch.randint(-127, 128, (77, 48)).float()
    whole[:, 0] = 127.0  # so that each scale is 1
    layer = QuantisedLinear(whole, torch.arange(77.0))
    x = torch.randint(-100, 101, (rows, 48)).float()
    x[:, 1] = float(layer.most)  # so that each row's size is 1
    tape = Tape(16 if rows <= 16 else 128)
    first = tape.space(48)
    tape.linear(layer, first, answer=True)
    answers = []
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            answers.append(Player(tape, first, []).play(x, []))
        finally:
            torch.set_num_threads(before)
    torch.testing.assert_close(answers[0], x @ whole.T + torch.arange(77.0), rtol=1e-6, atol=0.5)
    assert torch.equal(*answers)


def test_layers_that_do_not_fit_are_not_written():
    tape = Tape()
    with pytest.raises(Unwritten, match="inputs"):
        tape.linear(nn.Linear(32, 16), tape.space(64))
    with pytest.raises(Unwritten, match="inputs"):
        tape.norm(nn.LayerNorm(32), tape.space(64))


@needs_threads
def test_sums_of_eight_bits_stay_within_their_bits():
    """Weights that are all as large as can be: x gets fewer bits, and no sum runs over."""
    layer = QuantisedLinear(torch.ones(32, 4096), None)
    assert layer.most == (2**31 - 1) // (127 * 4096)
    tape = Tape()
    first = tape.space(4096)
    tape.linear(layer, first, answer=True)
    for rows in (1, 8, 13):
        found = Player(tape, first, []).play(torch.full((rows, 4096), 2.0), [])
        torch.testing.assert_close(found, torch.full((rows, 32), 8192.0), rtol=1e-5, atol=0.0)


@needs_threads
@pytest.mark.parametrize("rows", [1, 4, 6, 8, 15, 20, 80])
def test_eight_bits_come_near_the_layer_in_single_precision(rows):
    torch.manual_seed(1)
    exact = nn.Linear(256, 96)
    layer = quantise(nn.Sequential(exact))[0]
    tape = Tape(16 if rows <= 16 else 128)
    first = tape.space(256)
    tape.linear(layer, first, answer=True)
    x = torch.randn(rows, 256) * torch.logspace(-3, 3, rows)[:, None]  # each row has a size of its own
    found = Player(tape, first, []).play(x, [])
    rounded = x @ layer.weight.T + exact.bias  # only the weights have eight bits
    size = x.abs().amax(1, keepdim=True)
    assert ((found - rounded).abs() <= 3e-4 * size + 1e-5).all()
    with torch.no_grad():
        assert ((found - exact(x)).norm(dim=1) <= 0.02 * exact(x).norm(dim=1)).all()


@needs_threads
def test_a_model_in_eight_bits_steps_by_tape_and_stays_near():
    model = gpt(hidden=128, vocabulary=300)
    small = quantise(model)
    prompts, rest = [torch.randint(300, (4,)) for _ in range(3)], torch.randint(300, (3, 6))
    expected, _ = stepped(model, prompts, rest, "auto")
    found, _ = stepped(small, prompts, rest, "auto")
    assert small._steps.players[16] is not model._steps.players[16]
    scales = [code[7] for code in small._steps.players[16].tape.code if code[0] == LINEAR]
    assert scales and all(scales)
    assert ((found - expected).norm(dim=-1) < 0.05 * expected.norm(dim=-1)).all()


@needs_threads
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_beams_of_a_translator_find_the_same_by_tape(norm):
    torch.manual_seed(0)
    sizes = {"vocabulary": 40, "source_vocabulary": 30, "layers": 2, "hidden": 64, "heads": 2}
    model = Transformer(TransformerConfig(**sizes, norm=norm, tied="target")).eval()
    source, lengths = torch.randint(30, (4, 7)), torch.tensor([7, 3, 5, 1])
    found = {}
    for kernel in ("reference", "auto"):
        model._steps.kernel = kernel
        for beam in (1, 3, 5):
            with torch.no_grad():
                state = model.start(source, lengths)
            how = Search(beam=beam, length="none", nbest=beam)
            found[kernel, beam] = beam_search(model, state, 0, end=1, longest=torch.tensor([9, 30, 12, 20]), how=how)
    assert set(model._steps.players) == {16, 128}
    for beam in (1, 3, 5):
        for one, other in zip(found["reference", beam], found["auto", beam], strict=True):
            assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]
            assert [each.score for each in one.hypotheses] == pytest.approx(
                [each.score for each in other.hypotheses], abs=1e-4
            )


@needs_threads
def test_beams_of_a_language_model_leave_a_memory_that_grows_too_large_to_share(monkeypatch):
    model = gpt(context=64)
    for module in ("mixers.full", "key_value_cache"):
        monkeypatch.setattr(f"ensue.nn.{module}.SHARED", 40)
    found = []
    for kernel in ("reference", "auto"):
        model._steps.kernel = kernel
        with torch.no_grad():
            state = model(torch.randint(77, (2, 5), generator=torch.Generator().manual_seed(1))).state
        how = Search(beam=4, length="none", nbest=4)
        found.append(beam_search(model, state, 3, end=None, longest=25, how=how))
    for one, other in zip(*found, strict=True):
        assert [each.tokens for each in one.hypotheses] == [each.tokens for each in other.hypotheses]


@needs_threads
def test_rows_can_attend_to_memories_by_number():
    torch.manual_seed(0)
    query, keys, values = torch.randn(3, 32), torch.randn(2, 2, 9, 16), torch.randn(2, 2, 9, 16)
    index, lengths = torch.tensor([1, 0, 1]), torch.tensor([9, 4, 1])
    tape = Tape()
    first = tape.space(32)
    identity = nn.Linear(32, 32, bias=False)
    identity.weight.data = torch.eye(32)
    tape.linear(identity, tape.attend(first, None, None, 2, 32), answer=True)
    found = Player(tape, first, []).play(query, [Memory(keys, values, lengths, index)])
    for row in range(3):
        k, v = (part[index[row], :, : lengths[row]] for part in (keys, values))
        weights = (query[row].view(2, 1, 16) @ k.transpose(1, 2) / 4).softmax(-1)
        torch.testing.assert_close(found[row].view(2, 16), (weights @ v)[:, 0], atol=1e-5, rtol=1e-5)
