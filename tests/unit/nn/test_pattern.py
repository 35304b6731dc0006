"""Attention whose pattern depends on positions: blocks and single tokens see what ``sees`` says, and nothing else."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.kernels.attention import attention_weights, shared_heads
from ensue.kernels.kernel import use
from ensue.nn.layout import PADDED, Layout
from ensue.nn.mixers.mixer import MixerConfig, build_mixer
from ensue.nn.positions import LinearBias

PATTERNS = [
    "local:span=1",
    "local:span=7",
    "local:span=20",
    "sparse",
    "sparse:stride=3",
    "sparse:kind=fixed:stride=4:c=2",
    "bigbird",
    "bigbird:block=2:window=1:global=1:random=1",
    "bigbird:block=2:window=3:global=1:random=2",
    "bigbird:block=3:window=4:global=0:random=3",
    "bigbird:block=4:window=2:global=3:random=0",
]
WIDTH, HEADS = 32, 4
BIAS = LinearBias(HEADS)


def built(pattern, causal=True, **more):
    torch.manual_seed(0)
    config = MixerConfig(width=WIDTH, heads=HEADS, causal=causal, **{"context": 40} | more)
    return build_mixer(pattern, config).double().eval()


def tokens(time, rows=3):
    return torch.randn(rows, time, WIDTH, dtype=torch.double, generator=torch.Generator().manual_seed(time))


def dense(mixer, x, lengths=None):
    """Attention under the n × n mask of ``sees``: outputs and weights."""
    steps = torch.arange(x.shape[1])
    query, key, value = mixer._heads(mixer._rotated(mixer._projected(x), steps[None], PADDED))
    mask = torch.stack([mixer.sees(steps, steps, head) for head in range(HEADS)])[None]
    if lengths is not None:
        mask = mask & (steps < lengths[:, None])[:, None, None]
    bias = None if mixer.score_bias is None else mixer.score_bias(steps[None], steps[None])
    weights = attention_weights(query, key, mask, bias)
    return mixer.out((weights @ shared_heads(value, HEADS)).transpose(1, 2).flatten(2)), weights


def close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both"])
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize(
    "more", [{}, {"kv_heads": 2, "rope_base": 100.0}, {"kv_heads": 1, "score_bias": LinearBias(HEADS)}]
)
def test_blocks_compute_attention_under_the_mask(pattern, causal, more):
    mixer = built(pattern, causal, **more)
    for time in (1, 5, 16, 37):
        x = tokens(time).requires_grad_()
        (y, _, weights), (expected, seen) = mixer(x, None, PADDED, True), dense(mixer, x)
        close(y, expected)
        close(weights, seen)
        assert torch.equal(y, mixer(x).y)
        gradient = torch.randn_like(y)
        inputs = [x, *mixer.parameters()]
        found, by_mask = (torch.autograd.grad((one * gradient).sum(), inputs) for one in (y, expected))
        for one, other in zip(found, by_mask, strict=True):
            close(one, other)
        with use("reference", "pattern_attention"):
            close(mixer(x).y, expected)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_padding_is_not_seen_in_both_directions(pattern):
    mixer, x, lengths = built(pattern, False), tokens(23), torch.tensor([11, 23, 0])
    y, expected = mixer(x, None, Layout(lengths)).y, dense(mixer, x, lengths)[0]
    assert bool(y.isfinite().all())
    for row, length in enumerate(lengths.tolist()):
        close(y[row, :length], expected[row, :length])


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("more", [{}, {"kv_heads": 2, "score_bias": BIAS}])
def test_rows_of_different_lengths_read_on_and_decode_what_each_sees(pattern, more):
    mixer, x = built(pattern, **more), tokens(26)
    lengths = torch.tensor([13, 0, 9])
    with torch.no_grad():
        _, state, _ = mixer(x[:, :13], None, Layout(lengths))
        chunk = mixer(x[:, 13:], state.fork()).y
        token = mixer(x[:, 13:14], state.fork()).y
        for row, length in enumerate(lengths.tolist()):
            alone = torch.cat([x[row, :length], x[row, 13:]])[None]
            expected = dense(mixer, alone)[0][0, length:]
            close(chunk[row], expected)
            close(token[row, 0], expected[0])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_row_is_the_same_read_token_by_token(pattern):
    mixer, x = built(pattern, kv_heads=2), tokens(37)
    state, found = mixer.start(3), []
    with torch.no_grad():
        for step in range(37):
            y, state, _ = mixer(x[:, step : step + 1], state)
            found.append(y)
    close(torch.cat(found, 1), dense(mixer, x)[0])


@pytest.mark.parametrize("pattern", ["sparse", "sparse:kind=fixed:stride=6", "bigbird:block=2:random=1"])
def test_a_decoded_token_reads_only_the_columns_that_it_sees(pattern):
    mixer = built(pattern)
    for position in (0, 7, 38):
        columns = mixer.columns(torch.tensor([position]), position + 1)
        for head in range(HEADS):
            own = columns[0, head % columns.shape[1]]
            seen = mixer.sees(torch.tensor([position]), torch.arange(position + 1), head)[0].nonzero()[:, 0]
            assert sorted(own[own >= 0].tolist()) == seen.tolist()


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "both"])
@pytest.mark.parametrize(
    "pattern",
    ["local:span=40", "sparse:stride=40", "sparse:kind=fixed:stride=40", "bigbird:block=8:window=11:random=1"],
)
def test_a_wide_pattern_is_full_attention(pattern, causal):
    wide, full, x = built(pattern, causal), built("full", causal), tokens(40)
    full.load_state_dict({name: value for name, value in wide.state_dict().items() if name != "seed"})
    close(wide(x).y, full(x).y)


@pytest.mark.parametrize("implementation", ["own_backward", "reference"])
@pytest.mark.parametrize("pattern", ["local:span=3", "sparse:stride=3", "bigbird:block=2:random=1"])
def test_dropout_keeps_the_mean_and_repeats_with_the_seed(pattern, implementation):
    mixer, x = built(pattern, dropout=0.25).train(), tokens(12, rows=1)
    with use(implementation, "pattern_attention"), torch.no_grad():
        torch.manual_seed(1)
        first = mixer(x).y
        torch.manual_seed(1)
        assert torch.equal(mixer(x).y, first)
        assert not torch.equal(mixer(x).y, first)
        mean = mixer(x.expand(4000, -1, -1)).y.mean(0, keepdim=True)
        torch.testing.assert_close(mean, mixer.eval()(x).y, atol=0.03, rtol=0)


@pytest.mark.parametrize("pattern", ["local:span=3", "sparse:kind=fixed:stride=3", "bigbird:block=2:random=1"])
@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_gradients_with_dropout_and_of_gradients_are_those_of_plain_operations(pattern, dropout):
    mixer = built(pattern, dropout=dropout).train()
    found = []
    for implementation in ("own_backward", "reference"):
        x = tokens(9, rows=1).requires_grad_()
        torch.manual_seed(2)
        with use(implementation, "pattern_attention"):
            y = mixer(x).y
            (first,) = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
            (second,) = torch.autograd.grad(first.pow(2).sum(), x)
        found.append((y, first, second))
    for own, plain in zip(*found, strict=True):
        close(own, plain)


def test_random_blocks_are_other_ones_and_do_not_depend_on_the_length():
    for causal in (True, False):
        mixer = built("bigbird:block=2:window=3:global=1:random=2", causal)
        drawn = mixer.random_blocks(torch.arange(15))  # (H, N, r)
        assert torch.equal(mixer.random_blocks(torch.arange(9)), drawn[:, :9])
        assert not torch.equal(drawn[0], drawn[1])
        for block in range(15):
            other = set(range(1, block - mixer.before)) | set(() if causal else range(max(1, block + 2), 20))
            for own in drawn[:, block].tolist():
                real = [one for one in own if one >= 0]
                assert set(real) <= other and len(set(real)) == len(real) == min(2, len(other))


def test_a_model_draws_other_random_blocks_with_another_seed_and_saves_them():
    torch.manual_seed(1)
    config = MixerConfig(width=WIDTH, heads=HEADS, context=400)
    first, second = (build_mixer("bigbird:block=4:random=2", config) for _ in range(2))
    blocks = torch.arange(100)
    assert not torch.equal(first.random_blocks(blocks), second.random_blocks(blocks))
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.random_blocks(blocks), second.random_blocks(blocks))


def test_the_patterns_of_the_papers():
    steps = torch.arange(9)
    strided = built("sparse:stride=3").sees(torch.tensor([7]), steps)[0]
    assert strided.nonzero()[:, 0].tolist() == [1, 4, 5, 6, 7]
    fixed = built("sparse:kind=fixed:stride=3:c=1").sees(torch.tensor([7]), steps)[0]
    assert fixed.nonzero()[:, 0].tolist() == [2, 5, 6, 7]
    bird = built("bigbird:block=2:window=1:global=1:random=0", causal=False)
    assert bird.sees(torch.tensor([7]), steps)[0].nonzero()[:, 0].tolist() == [0, 1, 6, 7]
    assert bool(bird.sees(torch.tensor([1]), steps).all())
    assert built("sparse", context=17).block == 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sparse:kind=dense", "must be one of strided, fixed"),
        ("sparse:stride=-1", "must be 0 or more"),
        ("sparse:kind=fixed:c=0", "must be 1 or more"),
        ("bigbird:block=-1", "block = -1"),
        ("bigbird:global=-1", "global = -1"),
        ("bigbird:globe=1", "did you mean 'global'"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as error:
        build_mixer(text, MixerConfig(width=8))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cap", [0.0, 1e6])
@pytest.mark.parametrize("pieces", [[30], [1] * 30, [3, 12, 1, 1, 13]], ids=str)
def test_local_attention_whose_cache_alone_knows_the_rotary_positions(pieces, cap):
    expected = built("local:span=5", rope_base=100.0)(tokens(30)).y
    mixer, state, found = built("local:span=5", rope_base=100.0, score_cap=cap), None, []
    for piece in tokens(30).split(pieces, dim=1):
        y, state, _ = mixer(piece, state)
        found.append(y)
    torch.testing.assert_close(torch.cat(found, 1), expected)


@pytest.mark.parametrize("kv_heads", [1, 2])
@pytest.mark.parametrize("pieces", [[90], [50, 1, 39], [5, 85]], ids=str)
def test_local_attention_of_heads_that_fill_registers(pieces, kv_heads):
    torch.manual_seed(0)
    config = MixerConfig(width=32, heads=2, kv_heads=kv_heads, causal=True, context=90, rope_base=100.0)
    mixer, x = build_mixer("local:span=20", config), torch.randn(2, 90, 32, requires_grad=True)
    steps, state, found = torch.arange(90)[None], None, []
    for piece, positions in zip(x.split(pieces, 1), steps.split(pieces, 1), strict=True):
        y, state, _ = mixer(piece, state, Layout(positions=positions))
        found.append(y)
    assert state.written < 90  # what nobody sees is dropped
    query, key, value = mixer._heads(mixer._rotated(mixer._projected(x), steps, PADDED))
    weights = attention_weights(query, key, mixer.sees(steps[0], steps[0]))
    expected = mixer.out((weights @ shared_heads(value, 2)).transpose(1, 2).flatten(2))
    torch.testing.assert_close(torch.cat(found, 1), expected, atol=1e-5, rtol=0)
    inputs = (x, *mixer.parameters())
    ours, wanted = (torch.autograd.grad(y.square().sum(), inputs) for y in (torch.cat(found, 1), expected))
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
