"""Every system in the table keeps the laws, saves and loads, and can learn; a model broken on purpose is found out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ensue.data.batches import Batch
from ensue.models.gpt import GPTLanguageModel
from ensue.models.laws import findings
from ensue.models.recurrent import LSTMLanguageModel
from ensue.models.table import SYSTEMS
from ensue.nn.protocol import Traits
from ensue.train.counting import count
from ensue.train.objectives import OBJECTIVES

VOCABULARY = 11
GEMMA = {"norm": "sandwich-rms", "feed": "geglu", "qk_norm": True, "embed_scale": 8**0.5, "head_width": 4}
VARIANTS = {
    "ngram": [
        {"order": n, "mode": m, "end": e}
        for n, m in ((1, "kneser-ney"), (3, "backoff"), (5, "kneser-ney"), (2, "add"), (4, "mle"))
        for e in (0, -1)
    ],
    "window": [{"context": n, "embedding": 4, "hidden": 8} for n in (1, 2, 5)],
    "rnn": [
        *({"hidden": 8, "activation": a, "layers": n} for a, n in (("tanh", 1), ("relu", 2), ("sigmoid", 1))),
        {"hidden": 8, "attend": 1, "span": 1},
        {"hidden": 8, "activation": "relu", "attend": 2, "layers": 2},
    ],
    "gru": [{"hidden": 8, "layers": 2, "connect": c} for c in ("plain", "residual", "dense")],
    "gru-cho": [{"hidden": 8, "layers": 2}, {"hidden": 8, "layers": 2, "attend": 2, "span": 4, "connect": "dense"}],
    "lstm": [
        {"hidden": 8, "layers": 2},
        {"hidden": 8, "layers": 2, "kernel": "reference", "connect": "dense"},
        {"hidden": 8, "projection": 3, "layers": 2, "connect": "residual"},
        {"hidden": 8, "embedding": 5, "tied": False},
        {"hidden": 8, "layers": 2, "attend": 4},
        {"hidden": 8, "layers": 2, "attend": 2, "span": 3},
        {"hidden": 8, "projection": 3, "attend": 3, "span": 2},
    ],
    "ulmfit": [
        {
            "hidden": 8,
            "embedding": 8,
            **{f"{name}dropout": 0.0 for name in ("", "layer_", "input_", "word_", "weight_")},
        },
        {"hidden": 6, "embedding": 8, "layers": 3, "kernel": "reference"},
        {"hidden": 8, "embedding": 5, "layers": 1, "tied": False},
        {"hidden": 6, "embedding": 8, "attend": 2, "span": 3},
    ],
    "bilm": [{"hidden": 8, "layers": 2}, {"hidden": 8, "attend": 2, "span": 3}],
    "llama": [
        {"layers": 2, "heads": 4, "kv_heads": kv, "hidden": 8, "context": c, **more}
        for kv, c, more in (
            (2, 16, {}),
            (1, 4, {"head_width": 4, "tied": False}),
            (4, 3, {"qkv_bias": True, "rope_scaling": "linear:factor=2"}),
            (2, 16, {"attention": "local:span=5"}),
            (2, 16, {"attention": "local:span=3:base=100,full", "rope_scaling": "linear:factor=2", **GEMMA}),
            (2, 16, {"attention": "local:span=3,full", **GEMMA, "attention_cap": 0.1, "logit_cap": 0.2}),
            (1, 4, {"attention": "local:span=3*2,full", "qk_norm": True}),
            (2, 16, {"adaptive": (2, 5, 9), "adaptive_factor": 1}),
        )
    ],
    "transformer-xl": [
        {"layers": 2, "heads": 2, "hidden": 8, "segment": s, "memory": m, **more}
        for s, m, more in (
            (4, 6, {"embed_scale": 8**0.5}),
            (2, 1, {"norm": "pre", "tied": False}),
            (1, 3, {"kv_heads": 1, "qk_norm": True}),
            (3, 4, {"window": "fixed", "clamp": 2}),
            (3, 2, {"begin": "zeros", "attention": "xl,local:span=3"}),
            (5, 0, {"attention": "xl:memory=2+full", "norm": "rms", "feed": "swiglu"}),
            (4, 3, {"adaptive": (3, 6), "adaptive_factor": 2}),
        )
    ],
    "gpt": [
        {"layers": 2, "heads": 2, "hidden": 8, "context": c, "positions": p, "norm": n}
        for c, p, n in (
            (16, "rotary", "pre"),
            (16, "learned", "post"),
            (4, "sinusoidal", "pre"),
            (3, "rotary", "post"),
            (1, "none", "pre"),
        )
    ]
    + [
        {"layers": 2, "heads": 2, "hidden": 8, "context": 16, "experts": 4, "experts_active": 2},
        {"layers": 1, "heads": 2, "hidden": 8, "context": 4, "experts": 3, "experts_gate": "noisy", "norm": "post"},
        {"layers": 1, "heads": 2, "hidden": 8, "context": 16, "adaptive": (4,), "tied": False},
    ],
}
CASES = [
    pytest.param(name, values, id=f"{name}-{n}") for name, many in VARIANTS.items() for n, values in enumerate(many)
]


def build(name, values, dtype=torch.float32):
    torch.manual_seed(0)
    cls = SYSTEMS.load(name)
    model = cls(cls.Config(vocabulary=VOCABULARY, **values))
    if name == "ngram":
        counter = model.counter()
        tokens = torch.randint(VOCABULARY, (400,)).numpy()
        count(counter, tokens)
        return counter.finish()
    return model.to(dtype)


def test_every_system_of_the_table_is_tested():
    assert {name for name in SYSTEMS if SYSTEMS.load(name).task == "language"} == set(VARIANTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32", "64"])
@pytest.mark.parametrize(("name", "values"), CASES)
def test_the_laws_hold(name, values, dtype):
    for found in findings(build(name, values, dtype)):
        assert found.kept, found


@settings(max_examples=15, deadline=None)
@given(
    case=st.sampled_from([(name, values) for name, many in VARIANTS.items() for values in many]),
    rows=st.integers(1, 5),
    time=st.integers(2, 12),
    seed=st.integers(0, 10**6),
)
def test_the_laws_hold_on_random_shapes(case, rows, time, seed):
    for found in findings(build(*case), seed=seed, rows=rows, time=time):
        assert found.kept, found


@pytest.mark.parametrize(("name", "values"), [case for case in CASES if case.values[0] != "bilm"])
def test_joined_rows_continue_as_they_would_alone(name, values):
    """Rows that have read differently much, joined; then one of them leaves, and another comes."""
    model = build(name, values, torch.float64).eval()
    tokens = torch.randint(VOCABULARY, (4, 9))
    read = [1, 6, 3, 4]
    with torch.no_grad():
        states = [model(tokens[row : row + 1, :size]).state for row, size in enumerate(read)]
        joined = type(states[0]).joined(states[:3])
        after = model(tokens[:3, 6:7], joined)
        back = after.state.rows(torch.tensor([2, 0]))
        last = model(tokens[[2, 0, 3], 7:8], type(back).joined([back, states[3]]))
        for place, row in enumerate([2, 0, 3]):
            seen = torch.cat(
                [tokens[row, : read[row]], tokens[row, 6:7] if row < 3 else tokens[:0, 0], tokens[row, 7:8]]
            )
            alone = model(seen[None]).logits[0, -1].log_softmax(-1)
            torch.testing.assert_close(last.logits[place, -1].log_softmax(-1), alone, atol=1e-10, rtol=0)


class Leaks(LSTMLanguageModel):
    """Looks one token ahead."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",)):
        return super().forward(tokens.roll(-1, dims=1), state, lengths, want)


class Forgets(LSTMLanguageModel):
    """Drops its state."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",)):
        return super().forward(tokens, None, lengths, want)


class Mixes(LSTMLanguageModel):
    """Lets rows see each other."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",)):
        output = super().forward(tokens, state, lengths, want)
        if output.logits is not None:
            output.logits.add_(output.logits.mean(0, keepdim=True) * torch.linspace(0, 1, VOCABULARY))
        return output


class Pads(LSTMLanguageModel):
    """Ignores where rows end."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",)):
        return super().forward(tokens, state, None, want)


class Sees(SYSTEMS.load("bilm")):
    """Claims to be causal."""

    traits = Traits(causal=True, steps=False)


@pytest.mark.parametrize(
    ("cls", "law"),
    [
        (Leaks, "cause law"),
        (Forgets, "chunk law"),
        (Mixes, "rows law"),
        (Pads, "padding law"),
        (Sees, "leak law"),
    ],
)
def test_a_deliberately_broken_model_fails_its_law(cls, law):
    torch.manual_seed(0)
    broken = [f.law for f in findings(cls(cls.Config(vocabulary=VOCABULARY, hidden=8))) if not f.kept]
    assert law in broken


@pytest.mark.parametrize(("name", "values"), CASES)
def test_weights_survive_saving(name, values, tmp_path):
    model = build(name, values).eval()
    save_file({k: v.clone() for k, v in model.state_dict().items()}, tmp_path / "weights.safetensors")
    torch.manual_seed(1)
    cls = SYSTEMS.load(name)
    other = cls(cls.Config(vocabulary=VOCABULARY, **values)).eval()
    tensors = load_file(tmp_path / "weights.safetensors")
    other.adopt(tensors) if hasattr(other, "adopt") else other.load_state_dict(tensors)
    tokens = torch.randint(VOCABULARY, (2, 6))
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in model.state_dict().items())
    # sums depend on where weights lie in memory, on some processors
    torch.testing.assert_close(model(tokens).logits, other(tokens).logits, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "ngram"])
def test_one_batch_can_be_overfitted(name):
    model = build(name, VARIANTS[name][0])
    tokens = torch.randint(VOCABULARY, (2, 9))
    batch = Batch(tokens[:, :-1], tokens[:, 1:], reset_state=True)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=0)
    objective = OBJECTIVES[getattr(model, "objective", "next")]
    first = None
    for _ in range(250):
        loss, _ = objective(model, batch, None)
        first = first if first is not None else loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # a window of one token cannot tell all places apart, so it learns less
    assert loss.item() < (0.7 * first if name == "window" else 0.25 * first)


class Forgetful(GPTLanguageModel):
    """Ignores its state."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",)):
        return super().forward(tokens, None, lengths, want)


def loud(cls, dtype=torch.float32):
    """A model whose logits are as large as a trained model's can be."""
    torch.manual_seed(0)
    config = cls.Config(vocabulary=VOCABULARY, hidden=64, layers=2, heads=2, context=16, tied=False)
    model = cls(config).to(dtype)
    with torch.no_grad():
        model.head.weight.mul_(300)
    return model


def test_rounding_of_large_logits_breaks_no_law():
    model = loud(GPTLanguageModel)
    found = list(findings(model))
    with torch.no_grad():
        largest = model.eval()(torch.arange(VOCABULARY)[None]).logits.abs().max().item()
    assert largest > 20 and max(finding.difference for finding in found) > 1e-5  # more than an absolute 1e-5
    assert all(finding.kept for finding in found), found
    assert found[0].tolerance == pytest.approx(1e-5 * largest, rel=0.5)


def test_a_broken_law_shows_at_any_size_of_logits():
    found = {finding.law: finding for finding in findings(loud(Forgetful))}
    assert not found["chunk law"].kept and not found["rows law"].kept
    assert found["chunk law"].difference > 1000 * found["chunk law"].tolerance


def test_float64_has_one_tolerance_whatever_the_size():
    found = list(findings(loud(GPTLanguageModel, torch.float64)))
    assert all(finding.kept and finding.tolerance in (0.0, 1e-10) for finding in found)
