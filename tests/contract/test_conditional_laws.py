"""Every encoder–decoder keeps the laws with every kind of attention; a deliberately broken one fails."""

from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ensue.models.conditional import FixedSourceModel
from ensue.models.laws import findings, laws_of, source_laws
from ensue.models.seq2seq import CELLS, ENCODERS, Seq2Seq
from ensue.models.table import SYSTEMS
from ensue.models.transformer import Transformer
from ensue.nn.scores import SCORES
from ensue.nn.source import Source
from ensue.nn.stacks import CONNECTIONS
from ensue.tasks.table import tasks_of_class
from ensue.train.objectives import TranslationLoss

VOCABULARY, SOURCE = 11, 13
SMALL = {
    "transformer": {"layers": 2, "heads": 2, "hidden": 8, "context": 16},
    "seq2seq": {"layers": 2, "hidden": 8, "context": 16},
    "convs2s": {"layers": 2, "hidden": 8, "context": 16},
    "bytenet": {"layers": 2, "hidden": 8, "context": 16},
    "t5": {"layers": 2, "heads": 2, "hidden": 8, "context": 16, "attention": "relative:buckets=6:distance=5"},
}
VARIANTS = {
    "transformer": [
        {"norm": "pre"},
        {"norm": "post", "activation": "gelu"},
        {"norm": "pre", "tied": "none", "inner": 12, "context": 2},
    ],
    "convs2s": [{}, {"width": 2, "embedding": 6}],
    "bytenet": [{}, {"sets": 2, "width": 2, "tied": "none"}],
    "t5": [
        {"tied": "all"},
        {"tied": "embeddings", "feed": "geglu", "decoder_layers": 1, "head_width": 6},
    ],
    "seq2seq": [
        {"attention": "content", "cell": "gru", "encoder": "forward"},
        {"attention": "content", "feeding": "input", "cell": "rnn", "layers": 1},
        {"attention": "additive"},
        {"attention": "additive", "feeding": "input", "connect": "dense", "embedding": 6},
        {"attention": "location", "encoder": "alternating", "connect": "fast-forward", "layers": 3},
        {"attention": "location", "feeding": "input", "cell": "gru-cho", "layers": 1},
        {"attention": "general", "encoder": "bottom", "connect": "residual"},
        {"attention": "general", "feeding": "input", "layers": 1},
        {"attention": "dot", "connect": "residual", "tied": "none"},
        {"attention": "dot", "feeding": "input", "encoder": "alternating", "cell": "gru"},
        {"attention": "scaled-dot", "layers": 1},
        {"attention": "scaled-dot", "feeding": "input", "encoder": "bottom", "connect": "residual", "layers": 3},
        {"attention": "none"},
        {"attention": "none", "encoder": "forward", "cell": "gru", "layers": 1},
        {"attention": "none", "encoder": "alternating", "connect": "dense", "cell": "gru-cho"},
        {"attention": "none", "encoder": "alternating", "connect": "fast-forward"},
    ],
}
CASES = [
    pytest.param(name, values, id=f"{name}-{'-'.join(map(str, values.values()))}")
    for name, many in VARIANTS.items()
    for values in many
]


def build(name, values, dtype=torch.float32):
    torch.manual_seed(0)
    cls = SYSTEMS.load(name)
    config = {**SMALL[name], **values}
    size = VOCABULARY if config.get("tied") in ("all", "embeddings") else SOURCE
    return cls(cls.Config(vocabulary=VOCABULARY, source_vocabulary=size, **config)).to(dtype)


def test_every_translating_system_and_every_choice_is_tested():
    names = {name for name in SYSTEMS if "translation" in tasks_of_class(SYSTEMS.load(name))}
    assert names == set(VARIANTS)
    pairs = {(values["attention"], values.get("feeding", "none")) for values in VARIANTS["seq2seq"]}
    assert pairs == {*product(SCORES, ("none", "input")), ("none", "none")}
    for setting, choices in (
        ("encoder", set(ENCODERS)),
        ("connect", set(CONNECTIONS)),
        ("cell", set(CELLS)),
    ):
        default = getattr(Seq2Seq.Config(), setting)
        assert {values.get(setting, default) for values in VARIANTS["seq2seq"]} == choices


@pytest.mark.parametrize(("name", "values"), CASES)
def test_the_laws_hold(name, values):
    names = []
    for found in laws_of(build(name, values)):
        assert found.kept, found
        names.append(found.law)
    assert {"chunk law", "rows law", "padding law", "cause law", "memory law", "leak law"} < set(names)
    assert {"source padding law", "source rows law", "source rows law, with gradients"} < set(names)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("transformer", {"norm": "post"}),
        ("transformer", {"tied": "all"}),
        ("seq2seq", {"feeding": "input", "attention": "additive"}),
        ("seq2seq", {"encoder": "bottom", "connect": "dense", "cell": "gru"}),
    ],
)
def test_the_laws_hold_in_double_precision(name, values):
    for found in laws_of(build(name, values, torch.float64)):
        assert found.kept and found.tolerance <= 1e-10, found


@settings(max_examples=8, deadline=None)
@given(
    case=st.sampled_from([(name, values) for name, many in VARIANTS.items() for values in many]),
    rows=st.integers(1, 4),
    time=st.integers(2, 9),
    places=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_the_laws_hold_on_random_shapes(case, rows, time, places, seed):
    model = build(*case)
    longest = min(places, model.config.context)
    source = torch.randint(model.config.source_vocabulary, (longest,), generator=torch.Generator().manual_seed(seed))
    for found in (*findings(FixedSourceModel(model, source), seed, rows, time), *source_laws(model, seed, longest)):
        assert found.kept, found


class Deaf(Transformer):
    """Its encoder ignores where sources end."""

    def encode(self, source, lengths=None, weights=False):
        return super().encode(source, None, weights)


class Unmasked(Transformer):
    """Its decoder looks at padded places."""

    def start(self, source, lengths=None):
        state = super().start(source, lengths)
        return type(state)(state.trunk, Source.of(state.source.parts, None, source.shape[1]))


class LateReader(Seq2Seq):
    """Its encoder reads on over the padding."""

    def start(self, source, lengths=None):
        state = super().start(source, None)
        return type(state)(state.stack, state.attended, super().start(source, lengths).source)


class FirstSentence(Source):
    """Forgets which sentence a row belongs to when rows are picked."""

    def rows(self, index):
        return FirstSentence(self.parts, self.lengths, torch.arange(len(index)) % len(self.lengths), each=0)

    def even(self):
        chosen = [part[self.index] for part in self.parts]
        return FirstSentence(tuple(chosen), self.lengths[self.index], torch.arange(len(self.index)))


class Confused(Seq2Seq):
    """Keeps its own memory in order, but not its source."""

    def start(self, source, lengths=None):
        state = super().start(source, lengths)
        held = state.source
        return type(state)(state.stack, state.attended, FirstSentence(held.parts, held.lengths, held.index))


class Written(Transformer):
    """Writes into what it was given: the next one to use the source sees it."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",)):
        state.source.parts[1].data.mul_(0.9)
        return super().forward(tokens, state, lengths, want)


@pytest.mark.parametrize(
    ("cls", "law"),
    [
        (Deaf, "source padding law"),
        (Unmasked, "source padding law"),
        (LateReader, "source padding law"),
        (Confused, "source rows law"),
        (Written, "chunk law"),
    ],
)
def test_a_deliberately_broken_model_fails_its_law(cls, law):
    torch.manual_seed(0)
    name = "transformer" if issubclass(cls, Transformer) else "seq2seq"
    model = cls(cls.Config(vocabulary=VOCABULARY, source_vocabulary=SOURCE, **SMALL[name]))
    assert law in [found.law for found in laws_of(model) if not found.kept]


@pytest.mark.parametrize(("name", "values"), [*((n, v) for n, many in VARIANTS.items() for v in (many[0], many[-1]))])
def test_weights_survive_saving(name, values, tmp_path):
    model = build(name, values).eval()
    save_file({k: v.clone() for k, v in model.state_dict().items()}, tmp_path / "weights.safetensors")
    other = build(name, values)
    for weight in other.parameters():
        torch.nn.init.zeros_(weight)
    other.eval().load_state_dict(load_file(tmp_path / "weights.safetensors"))
    source = torch.randint(model.config.source_vocabulary, (2, 5))
    tokens = torch.randint(VOCABULARY, (2, 6))
    assert torch.equal(model(tokens, model.start(source)).logits, other(tokens, other.start(source)).logits)


class Batch:
    """Two pairs of different lengths."""

    source = torch.tensor([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]])
    source_lengths = torch.tensor([5, 3])
    tokens = torch.tensor([[0, 2, 7, 1, 8], [0, 10, 4, 0, 0]])
    targets = torch.tensor([[2, 7, 1, 8, 0], [10, 4, 0, 0, 0]])
    lengths = torch.tensor([5, 3])


@pytest.mark.parametrize(
    ("name", "values"),
    [("transformer", {"dropout": 0.0}), ("seq2seq", {"dropout": 0.0}), ("seq2seq", {"attention": "none", "layers": 1})],
)
def test_one_batch_can_be_overfitted(name, values):
    model = build(name, values)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-2, weight_decay=0)
    first = None
    for _ in range(80):
        loss, _ = TranslationLoss()(model, Batch, None)
        first = first if first is not None else loss.item()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert loss.item() < 0.3 * first


@pytest.mark.parametrize(("name", "values"), CASES)
def test_every_weight_is_trained(name, values):
    """A weight that gets no gradient is one that no equation uses."""
    model = build(name, values)
    TranslationLoss()(model, Batch, None)[0].backward()
    assert [n for n, weight in model.named_parameters() if weight.grad is None] == []
