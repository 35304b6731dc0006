"""``ensue look pattern``: what is drawn is what the mixer sees."""

import pytest
import torch

from ensue.core.errors import InputError
from ensue.look.pattern import pattern, runs_of, visible


def test_the_pattern_of_local_attention_is_a_band():
    numbers = pattern(["local:span=3"], length=10, direction="both").numbers
    assert numbers["seen"] == [[[max(0, t - 2), min(10, t + 3)]] for t in range(10)]
    assert numbers["share"] == pytest.approx(0.44)
    causal = pattern(["local:span=3"], length=10).numbers
    assert causal["direction"] == "causal"
    assert causal["seen"] == [[[max(0, t - 2), t + 1]] for t in range(10)]


@pytest.mark.parametrize("name", ["bigbird", "reformer", "routing", "sparse", "local"])
def test_a_sparse_attention_leaves_something_out_also_in_a_short_context(name):
    assert pattern([name], length=256).numbers["share"] < 0.4  # of full attention it is 0.502


def test_a_recurrence_sees_everything_before_however_fast_it_forgets():
    for seed in (0, 1):
        assert torch.equal(visible("mamba", 256, True, seed)[0], torch.ones(256, 256).tril().bool())


def test_runs_are_the_positions_that_are_seen():
    row = torch.rand(200, generator=torch.Generator().manual_seed(0)) > 0.5
    rebuilt = torch.zeros(200, dtype=torch.bool)
    for start, end in runs_of(row):
        rebuilt[start:end] = True
    assert torch.equal(rebuilt, row)


def test_drawing_leaves_the_random_numbers_alone_and_one_seed_gives_one_pattern():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    one, other = (visible("linear", 12, True, 5) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before) and torch.equal(one, other)
    spec = pattern(["full"], length=12).draw().to_dict()
    assert "who sees whom among 12 positions" in spec["title"]["text"]


@pytest.mark.parametrize(
    ("names", "how", "message"),
    [
        ([], {}, "one attention, not 0"),
        (["lcoal"], {}, "did you mean 'local'"),
        (["mamba"], {"direction": "both"}, "left to right only"),
        (["full"], {"direction": "x"}, "causal or both"),
        (["full"], {"length": 0}, "--length 0"),
        (["full"], {"head": 9}, "--head 9"),
    ],
)
def test_wrong_requests_are_refused_in_one_line(names, how, message):
    with pytest.raises(InputError, match=message):
        pattern(names, **how)


@pytest.mark.parametrize(("name", "by_content"), [("bigbird:block=4", False), ("local", False), ("reformer", True)])
def test_only_what_depends_on_the_text_is_said_to(name, by_content):
    (caption,) = [pattern([name], length=64).draw().to_dict()["title"]["subtitle"]]
    assert ("depends on the text" in " ".join(caption)) is by_content


def test_heads_of_different_kinds_have_their_own_patterns():
    first, last = (pattern(["full+local:span=2"], length=8, head=head).numbers for head in (1, 4))
    assert first["seen"] == [[[0, t + 1]] for t in range(8)]
    assert last["seen"] == [[[max(0, t - 1), t + 1]] for t in range(8)]
    assert pattern(["full+linformer"], length=8).numbers["direction"] == "both"
