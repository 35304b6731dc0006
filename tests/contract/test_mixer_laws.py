"""Every mixer keeps the laws in every model that can use it; so do the other parts that settings swap."""

from dataclasses import replace

import pytest
import torch

from ensue.core.errors import InputError
from ensue.models.bert import BERT, BERTConfig
from ensue.models.forecast_laws import forecast_laws
from ensue.models.forecast_networks import GPTForecastConfig, GPTForecaster
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.laws import laws_of
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.nn.mixers.mixer import MIXERS, MixerConfig, build_mixer, parse_heads, parse_mixer
from ensue.search.beam import Search, beam_search

SMALL = {"layers": 2, "heads": 4, "hidden": 16, "context": 16}
GPT = GPTConfig(vocabulary=11, **SMALL)
PARTS = [
    *({"attention": name} for name in MIXERS),
    {"attention": "local:span=3"},
    {"attention": "local:span=3", "positions": "learned"},
    {"attention": "local:span=1", "positions": "none"},
    {"attention": "sparse:stride=3"},
    {"attention": "sparse:kind=fixed:stride=3:c=1", "positions": "learned"},
    {"attention": "sparse:stride=3", "positions": "alibi", "kv_heads": 2},
    {"attention": "bigbird:block=2:window=1:global=1:random=1"},
    {"attention": "bigbird:block=2:window=2:global=1:random=2", "positions": "alibi", "kv_heads": 2},
    {"attention": "full+local:span=3"},
    {"attention": "bigbird:block=2:random=1+local:span=3", "positions": "alibi", "kv_heads": 2},
    {"attention": "mean", "positions": "sinusoidal"},
    {"attention": "xl:segment=3:memory=4", "positions": "none", "kv_heads": 2, "qk_norm": True},
    {"attention": "xl:segment=2:memory=5:window=fixed:clamp=3+local:span=3"},
    {"attention": "relative:buckets=6:distance=5", "positions": "none", "kv_heads": 2, "qk_norm": True},
    {"attention": "performer:features=8", "positions": "none"},
    {"attention": "linear", "kv_heads": 2},
    {"attention": "sinkhorn:block=2"},
    {"attention": "sinkhorn:block=3", "kv_heads": 2, "positions": "learned"},
    {"attention": "sinkhorn:block=2", "positions": "alibi"},
    {"attention": "reformer:rounds=2:buckets=4:chunk=2"},
    {"attention": "reformer:rounds=1:buckets=2:chunk=3", "positions": "alibi", "kv_heads": 2},
    {"attention": "routing:clusters=3:window=2"},
    {"attention": "routing:clusters=2:window=5", "positions": "alibi", "kv_heads": 2, "qk_norm": True},
    {"kv_heads": 2},
    {"kv_heads": 1, "attention": "local:span=4"},
    {"feed": "relu", "bias": False},
    {"norm": "rms", "feed": "swiglu", "bias": False, "kv_heads": 2, "tied": False},
    {"norm": "post-rms", "feed": "geglu"},
    {"norm": "reversible"},
    {"norm": "reversible-rms", "attention": "reformer:rounds=2:buckets=4:chunk=2"},
    {"positions": "alibi"},
    {"positions": "alibi", "attention": "local:span=4"},
    {"feed": "relu", "inner": 24},
]


def named(parts):
    return ",".join(f"{key}={value}" for key, value in parts.items())


def kept(found):
    broken = [f"{one.law}: {one.difference}" for one in found if not one.kept]
    assert not broken, broken


def reads(parts, direction):
    """Whether the mixer of these parts can read in a direction."""
    mixers = parse_heads(parts.get("attention", "full"))
    return all(direction in MIXERS.load(parse_mixer(one)[0]).directions for one in mixers)


CAUSAL = [one for one in PARTS if reads(one, "causal")]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("parts", CAUSAL, ids=named)
def test_a_language_model_of_these_parts_keeps_the_laws(parts, dtype):
    kept(laws_of(GPTLanguageModel(replace(GPT, **parts)).to(dtype)))


BOTH_WAYS = [one for one in CAUSAL if reads(one, "both") and "tied" not in one]
"""What an encoder can use too, and every model has a setting for."""
ENCODERS = [
    *(one for one in PARTS if not reads(one, "causal")),
    {"attention": "linformer:rank=3:share=none", "kv_heads": 2},
    {"attention": "linformer:rank=5:share=layer", "positions": "sinusoidal"},
    {"attention": "sinkhorn:block=2:cut=2"},
    {"attention": "disentangled:longest=3", "kv_heads": 2, "qk_norm": True},
    {"attention": "disentangled-shared:longest=12:buckets=4", "kv_heads": 2, "norm": "rms", "positions": "none"},
    {"attention": "full+disentangled", "positions": "sinusoidal"},
]
"""What only an encoder can use."""


@pytest.mark.parametrize("parts", BOTH_WAYS, ids=named)
def test_an_encoder_and_an_encoder_decoder_of_these_parts_keep_the_laws(parts):
    kept(laws_of(BERT(BERTConfig(vocabulary=11, **SMALL, **{"dropout": 0.0} | parts))))
    config = TransformerConfig(vocabulary=11, source_vocabulary=9, tied="target", **SMALL, **parts)
    kept(laws_of(Transformer(config)))


@pytest.mark.parametrize("parts", ENCODERS, ids=named)
def test_an_encoder_of_parts_that_only_it_can_use_keeps_the_laws(parts):
    for dtype in (torch.float32, torch.float64):
        kept(laws_of(BERT(BERTConfig(vocabulary=11, **SMALL, **{"dropout": 0.0} | parts)).to(dtype)))


@pytest.mark.parametrize(
    "parts",
    [{"attention": "mean"}, {"attention": "local:span=3"}, {"attention": "sinkhorn:block=2"}, {"kv_heads": 2}],
    ids=named,
)
def test_a_forecaster_of_these_parts_keeps_the_laws(parts):
    sizes = {"layers": 2, "heads": 4, "hidden": 16, "window": 6, "horizon": 2}
    kept(forecast_laws(GPTForecaster(GPTForecastConfig(**sizes, **parts))))


@pytest.mark.parametrize(
    "attention", ["local:span=4", "mean", "linear", "performer:features=8", "xl:segment=5:memory=6"]
)
def test_a_bounded_state_stays_small_and_needs_no_window(attention):
    model = GPTLanguageModel(replace(GPT, attention=attention, positions="none")).eval()
    assert model.traits.context is None
    sizes = []
    with torch.no_grad():
        state = model.start(2)
        for _ in range(50):
            state = model(torch.randint(11, (2, 1)), state).state
            sizes.append(sum(tensor.numel() for _, tensor in state.tensors()))
    assert max(sizes[20:]) == max(sizes[:20])


BEAMED = [
    "xl:segment=3:memory=2",
    "local:span=4",
    "mean",
    "full",
    "linear",
    "performer",
    "sinkhorn:block=2",
    "sparse:stride=3",
    "mamba",
]
BEAMED += ["reformer:buckets=2:chunk=3", "routing:clusters=2:window=3", "bigbird:block=2:random=1"]


@pytest.mark.parametrize("attention", BEAMED)
def test_a_beam_over_any_mixer_finds_what_scoring_says(attention):
    torch.manual_seed(0)
    model = GPTLanguageModel(replace(GPT, attention=attention)).double().eval()
    with torch.no_grad():
        (found,) = beam_search(
            model, model.start(1), 3, end=None, longest=8, how=Search(beam=4, length="none", nbest=4)
        )
        for one in found.hypotheses:
            tokens = torch.tensor([[3, *one.tokens]])
            scored, _ = model.log_prob(tokens[:, :-1], tokens[:, 1:])
            assert one.score == pytest.approx(scored.sum().item(), abs=1e-8)


def test_packed_rows_are_padded_for_a_mixer_that_needs_it():
    torch.manual_seed(0)
    config = BERTConfig(vocabulary=11, dropout=0.0, attention="local:span=3", **SMALL)
    model, tokens, lengths = BERT(config).eval(), torch.randint(11, (3, 9)), torch.tensor([9, 4, 6])
    with torch.no_grad():
        packed = model(tokens, lengths=lengths).logits
    padded = model(tokens, lengths=lengths).logits  # under autograd rows stay padded
    for row, length in enumerate(lengths.tolist()):
        torch.testing.assert_close(packed[row, :length], padded[row, :length], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ful", "did you mean 'full'"),
        ("local:spam=3", "did you mean 'span'"),
        ("local:span=x", "must be a whole number"),
        ("local:3", "is not option=value"),
        ("local:span=-1", "must be 0 or more"),
        ("local:span=3:span=4", "'span' is given twice"),
        ("mean:span=3", "'mean' has no options"),
    ],
)
def test_a_wrong_mixer_or_option_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message):
        build_mixer(text, MixerConfig(width=8))


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"attention": "bigbird:block=-1"}, "block = -1"),
        ({"attention": "bigbird:block=-1:window=2"}, "block = -1"),
        ({"attention": "full,performer:features=-1"}, "features = -1"),
        ({"attention": "mamba:groups=3"}, "groups = 3"),
        ({"attention": "full+local+linear"}, "cannot be divided among 3 mixers"),
        ({"attention": "linear", "positions": "alibi"}, "cannot use positions=alibi"),
        ({"attention": "linear", "attention_cap": 5.0}, "cannot cap its scores"),
    ],
)
def test_what_a_constructor_refuses_the_settings_of_a_model_refuse(parts, message):
    with pytest.raises(InputError, match=message):
        replace(GPT, **parts)


def test_checking_settings_draws_no_random_numbers_and_leaves_sizes_to_the_model():
    before = torch.get_rng_state()
    for name in ("performer", "bigbird", "reformer", "mamba"):
        replace(GPT, attention=name)
    assert torch.equal(torch.get_rng_state(), before)
    assert replace(GPT, hidden=4 << 40).hidden == 4 << 40


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("full+local:span=17", "span = 17 is larger than the context, 16"),
        ("full,sparse:stride=17", "stride = 17 is larger"),
        ("bigbird:block=17", "block = 17 is larger"),
        ("bigbird:block=8:window=3", "window = 3 blocks of 8 are larger"),
        ("bigbird:window=3", "window = 3 blocks of 8 are larger"),
        ("bigbird:block=4:global=5", "global = 5 blocks of 4 are larger"),
        ("sinkhorn:block=17", "block = 17 is larger"),
        ("reformer:chunk=17", "chunk = 17 is larger"),
        ("routing:window=17", "window = 17 is larger"),
        ("routing:clusters=17", "clusters = 17 is larger"),
    ],
)
def test_a_window_larger_than_the_context_is_refused_by_the_settings_of_a_model(text, message):
    with pytest.raises(InputError, match=message):
        replace(GPT, attention=text, context=16)


def test_a_window_as_large_as_the_context_and_every_default_are_accepted():
    for text in (
        "local:span=16",
        "bigbird:block=8:window=2:global=2",
        "sparse:stride=16",
        "sinkhorn:block=16",
        *MIXERS,
    ):
        if text not in MIXERS or "causal" in MIXERS.load(text).directions:
            assert replace(GPT, attention=text, context=16).attention == text
    assert BERTConfig(vocabulary=11, attention="linformer:rank=4", **SMALL | {"context": 4}).context == 4
    with pytest.raises(InputError, match="rank = 5 is larger than the context, 4"):
        BERTConfig(vocabulary=11, attention="linformer:rank=5", **SMALL | {"context": 4})


def test_a_mixer_of_both_directions_is_refused_by_a_causal_model():
    with pytest.raises(InputError, match="both directions only"):
        GPTLanguageModel(replace(GPT, attention="linformer"))


def test_a_mixer_of_one_direction_is_refused_by_an_encoder():
    with pytest.raises(InputError, match="left to right only"):
        BERT(BERTConfig(vocabulary=11, attention="mean", **SMALL))
