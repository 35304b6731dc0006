"""Attention with a memory: against an n × n reference, where gradients stop, and what segments change."""

import math

import pytest
import torch
from torch.nn import functional as F

from ensue.core.errors import InputError
from ensue.nn.layout import Layout
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.nn.mixers.xl import shifted, use_memory

D, H = 8, 2


def build(text, **config):
    torch.manual_seed(0)
    mixer = build_mixer(text, MixerConfig(width=D, heads=H, **config)).double().eval()
    for weight in mixer.parameters():
        torch.nn.init.normal_(weight, std=0.6)
    return mixer


def reference(mixer, x, segment, memory, fixed=False):
    """The equation for a text (T, D), pair by pair: every score from its four terms and its own distance."""
    d, T = D // H, len(x)
    W_q, W_k, W_v = mixer.project.weight.split(D)
    W_r, u, v = mixer.positions.weight, mixer.content_bias, mixer.position_bias
    even = 10000.0 ** (-torch.arange(0, D, 2).double() / D)
    rows = []
    for i in range(T):
        begin = i - i % segment
        first = max(0, i - memory + 1 if fixed else begin - memory)
        heads = []
        for h in range(H):
            part = slice(h * d, (h + 1) * d)
            q = (W_q @ x[i])[part]
            scores, values = [], []
            for j in range(first, i + 1):
                source = x[j] if j >= begin else x[j].detach()
                r = torch.stack([torch.sin((i - j) * even), torch.cos((i - j) * even)], -1).flatten()
                key, place = (W_k @ source)[part], (W_r @ r)[part]
                scores.append(q @ key + q @ place + u[h] @ key + v[h] @ place)
                values.append((W_v @ source)[part])
            heads.append((torch.stack(scores) / math.sqrt(d)).softmax(-1) @ torch.stack(values))
        rows.append(mixer.out.weight @ torch.cat(heads))
    return torch.stack(rows)


FORMS = [
    ("xl:segment=3:memory=2", (3, 2)),
    ("xl:segment=3:memory=5", (3, 5)),
    ("xl:segment=4:memory=0", (4, 0)),
    ("xl:segment=1:memory=3", (1, 3)),
    ("xl:segment=20:memory=0", (20, 0)),
    ("xl:segment=4:memory=3:window=fixed", (4, 3, True)),
]


@pytest.mark.parametrize(("text", "form"), FORMS)
def test_outputs_and_gradients_equal_the_equation_pair_by_pair(text, form):
    mixer, x = build(text), torch.randn(11, D, dtype=torch.float64)
    pull, found = torch.randn(11, D, dtype=torch.float64), []
    for run in (lambda x: mixer(x[None]).y[0], lambda x: reference(mixer, x, *form)):
        inputs = x.clone().requires_grad_()
        y = run(inputs)
        found.append((y, *torch.autograd.grad((y * pull).sum(), [inputs, *mixer.parameters()])))
    for ours, expected in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("text", "form"), FORMS)
def test_chunks_of_any_size_give_the_same_outputs_and_gradients(text, form):
    mixer, x = build(text), torch.randn(2, 11, D, dtype=torch.float64)
    pull, found = torch.randn(2, 11, D, dtype=torch.float64), []
    for sizes in ([11], [2, 5, 4], [1] * 11):
        inputs, state, parts = x.clone().requires_grad_(), None, []
        for piece in inputs.split(sizes, dim=1):
            y, state, _ = mixer(piece, state)
            parts.append(y)
        y = torch.cat(parts, dim=1)
        found.append((y, *torch.autograd.grad((y * pull).sum(), [inputs, *mixer.parameters()])))
    for others in found[1:]:
        for ours, expected in zip(others, found[0], strict=True):
            torch.testing.assert_close(ours, expected, atol=1e-10, rtol=0)


def test_a_memory_that_covers_the_text_makes_segments_of_any_size_alike():
    x, expected = torch.randn(1, 12, D, dtype=torch.float64), None
    for segment in (1, 3, 5, 12, 50):
        y = build(f"xl:segment={segment}:memory=12")(x).y
        expected = y if expected is None else expected
        torch.testing.assert_close(y, expected, atol=1e-10, rtol=0)
    short = build("xl:segment=3:memory=2")(x).y
    assert (short - expected)[:, 6:].abs().max() > 1e-3  # and one that does not cover it does not


def test_no_gradient_reaches_earlier_segments():
    mixer, x = build("xl:segment=3:memory=9"), torch.randn(1, 9, D, dtype=torch.float64, requires_grad=True)
    y = mixer(x).y
    for t in range(9):
        (gradient,) = torch.autograd.grad(y[0, t].sum(), x, retain_graph=True)
        reached = gradient[0].abs().sum(-1) > 0
        assert reached.nonzero().flatten().tolist() == list(range(t - t % 3, t + 1))


def test_rows_out_of_phase_equal_each_row_alone_with_its_gradients():
    mixer = build("xl:segment=3:memory=4")
    x, later = torch.randn(2, 5, D, dtype=torch.float64), torch.randn(2, 7, D, dtype=torch.float64)
    _, state, _ = mixer(x, None, Layout(torch.tensor([5, 2])))
    together, after, seen = mixer(later, state, Layout(torch.tensor([7, 6])), weights=True)
    weights = list(mixer.parameters())
    gradients = torch.autograd.grad(together[0, :7].sum() + together[1, :6].sum(), weights)
    alone, expected = [], [torch.zeros_like(weight) for weight in weights]
    for row, (before, size) in enumerate([(5, 7), (2, 6)]):
        _, own, _ = mixer(x[row : row + 1, :before])
        y, _, _ = mixer(later[row : row + 1, :size], own)
        torch.testing.assert_close(together[row, :size], y[0], atol=1e-10, rtol=0)
        alone.append(y)
        expected = [a + b for a, b in zip(expected, torch.autograd.grad(y.sum(), weights), strict=True)]
    for ours, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-10, rtol=0)
    assert after.read.tolist() == [12, 8]
    torch.testing.assert_close(seen.sum(-1), torch.ones_like(seen[..., 0]))
    with torch.no_grad():  # there rows are read together
        torch.testing.assert_close(mixer(later, state).y[:, :6], together[:, :6], atol=1e-10, rtol=0)


def test_weights_are_those_of_every_pair():
    mixer, x = build("xl:segment=3:memory=2"), torch.randn(1, 7, D, dtype=torch.float64)
    _, state, first = mixer(x[:, :4], weights=True)
    _, _, rest = mixer(x[:, 4:], state, weights=True)
    whole = mixer(x, weights=True).weights
    assert whole.shape == (1, H, 7, 7)
    torch.testing.assert_close(first, whole[:, :, :4, :4])
    torch.testing.assert_close(rest, whole[:, :, 4:, 7 - rest.shape[-1] :])
    assert [row.nonzero().flatten().tolist() for row in whole[0, 0]][3:6] == [[1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4, 5]]


def test_the_shift_gives_each_query_its_distances():
    for T, N in ((1, 4), (3, 3), (2, 5), (4, 7)):
        distances = torch.arange(N - 1, -1, -1.0)
        found = shifted(distances.expand(2, T, N))
        for i in range(T):
            for j in range(N - T + i + 1):
                assert found[0, i, j] == N - T + i - j


def test_keys_of_the_memory_are_kept_outside_autograd_only():
    mixer, x = build("xl:segment=3:memory=4"), torch.randn(2, 5, D, dtype=torch.float64)
    _, trained, _ = mixer(x)
    with torch.no_grad():
        _, read, _ = mixer(x)
    assert trained.keys is None and read.keys.shape == (2, H, read.inputs.shape[1], D // H)
    torch.testing.assert_close(mixer(x, trained).y, mixer(x, read).y, atol=1e-12, rtol=0)


def test_the_state_holds_what_later_tokens_see_and_no_more():
    mixer, state = build("xl:segment=4:memory=6"), None
    with torch.no_grad():
        for t in range(30):
            _, state, _ = mixer(torch.randn(1, 1, D, dtype=torch.float64), state)
            assert state.inputs.shape[1] == min(t + 1, 6 + (t + 1) % 4)


def test_a_memory_of_zeros_is_attended_to():
    zeros, empty = build("xl:segment=3:memory=4:begin=zeros"), build("xl:segment=3:memory=4")
    x = torch.randn(1, 2, D, dtype=torch.float64)
    given = F.pad(x, (0, 0, 4, 0))  # four vectors of zeros, then the text, in one segment
    expected = build("xl:segment=6:memory=0")(given).y[:, 4:]
    torch.testing.assert_close(zeros(x).y, expected, atol=1e-10, rtol=0)
    assert (empty(x).y - expected).abs().max() > 1e-3


def test_a_clamp_lets_far_positions_look_alike():
    near, far = build("xl:segment=9:memory=0:clamp=2"), build("xl:segment=9:memory=0")
    x = torch.randn(1, 1, D, dtype=torch.float64).expand(1, 9, D)  # so that only distances differ
    shares = near(x, weights=True).weights[0, 0, 8]
    torch.testing.assert_close(shares[:7], shares[:1].expand(7))
    assert far(x, weights=True).weights[0, 0, 8, :7].unique().numel() > 1


def test_a_longer_memory_can_be_used_for_evaluation():
    mixer, x = build("xl:segment=3:memory=2"), torch.randn(1, 12, D, dtype=torch.float64)
    assert use_memory(torch.nn.Sequential(mixer), 12) == 1
    torch.testing.assert_close(mixer(x).y, build("xl:segment=3:memory=12")(x).y)
    assert use_memory(torch.nn.Linear(2, 2), 12) == 0
    with pytest.raises(InputError, match="memory = -1 must be 0 or more"):
        use_memory(mixer, -1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("xl:segment=-1", "segment = -1 must be 0 or more"),
        ("xl:memory=-2", "memory = -2 must be 0 or more"),
        ("xl:clamp=-1", "clamp = -1 must be 0 or more"),
        ("xl:window=far", "window = 'far' must be one of segment, fixed"),
        ("xl:begin=ones", "begin = 'ones' must be one of empty, zeros"),
        ("xl:window=fixed:memory=0", "memory = 0 must be 1 or more"),
    ],
)
def test_wrong_options_are_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message):
        build(text)


def test_linear_biases_are_refused_beside_relative_positions():
    with pytest.raises(InputError, match="cannot use positions=alibi"):
        build("xl", score_bias=torch.nn.Identity())
