"""Every encoder keeps its laws, saves and loads, and can learn; a model broken on purpose is found out."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from ensue.models.bert import BERT
from ensue.models.laws import findings, laws_of
from ensue.models.table import SYSTEMS
from ensue.runs.save_weights import own_tensors

VOCABULARY = 11
SMALL = {"vocabulary": VOCABULARY, "layers": 2, "heads": 2, "hidden": 8, "context": 16}
VARIANTS = {
    "bert": [
        {},
        {"activation": "relu", "inner": 12, "layers": 1},
        {"segments": 0, "pooled": False, "next_sentence": False},
    ],
    "roberta": [{}, {"activation": "gelu", "heads": 4}],
    "albert": [
        {"embedding": 4},
        {"embedding": 6, "groups": 2, "layers": 4, "norm": "pre", "positions": "sinusoidal"},
        {"embedding": 0, "groups": 2, "layers": 3, "norm": "reversible"},
    ],
    "electra": [
        {"embedding": 4, "generator": 0.5},
        {"embedding": 0, "generator": 1.0, "generator_layers": 1, "norm": "pre", "positions": "sinusoidal"},
    ],
    "deberta": [
        {},
        {"attention": "disentangled-shared:longest=9:buckets=6", "decoder": 1, "norm": "pre", "layers": 3},
        {
            "attention": "disentangled:longest=3",
            "decoder": 3,
            "layers": 1,
            "norm": "reversible",
            "positions": "learned",
        },
        {"decoder": 0, "segments": 2, "embedding": 4, "kv_heads": 1, "bias": False},
        {"attention": "disentangled,disentangled-shared", "norm": "sandwich-rms", "qk_norm": True},
    ],
}
LARGE_ENOUGH = {"electra": {"generator": 1.0}}
"""What a model needs to remember one batch: a quarter of this width is too little."""
CASES = [
    pytest.param(name, values, id=f"{name}-{n}") for name, many in VARIANTS.items() for n, values in enumerate(many)
]


def build(name, values, dtype=torch.float32, cls=None):
    torch.manual_seed(0)
    cls = cls or SYSTEMS.load(name)
    model = cls(cls.Config(**{**SMALL, **values}))
    for weight in model.parameters():
        torch.nn.init.normal_(weight, std=0.5)
    return model.to(dtype)


def test_every_encoder_of_the_table_is_tested():
    assert {name for name in SYSTEMS if SYSTEMS.load(name).task == "masked"} == set(VARIANTS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["32", "64"])
@pytest.mark.parametrize(("name", "values"), CASES)
def test_the_laws_hold(name, values, dtype):
    found = list(laws_of(build(name, values, dtype)))
    assert {one.law for one in found} == {"order law", "padding law", "memory law"}
    for one in found:
        assert one.kept, one


@settings(max_examples=10, deadline=None)
@given(
    case=st.sampled_from([(name, values) for name, many in VARIANTS.items() for values in many]),
    rows=st.integers(1, 5),
    time=st.integers(2, 16),
    seed=st.integers(0, 10**6),
)
def test_the_laws_hold_on_random_shapes(case, rows, time, seed):
    for found in findings(build(*case), seed=seed, rows=rows, time=time):
        assert found.kept, found


class Pads(BERT):
    """Ignores where rows end."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",), segments=None):
        return super().forward(tokens, state, None, want, segments)


class Mixes(BERT):
    """Lets rows see each other."""

    def forward(self, tokens, state=None, lengths=None, want=("logits",), segments=None):
        output = super().forward(tokens, state, lengths, want, segments)
        if output.logits is not None:
            output.logits.add_(output.logits[:1].clone())
        return output


@pytest.mark.parametrize(("cls", "law"), [(Pads, "padding law"), (Mixes, "order law")])
def test_a_deliberately_broken_model_fails_its_law(cls, law):
    assert law in [found.law for found in findings(build("bert", {}, cls=cls)) if not found.kept]


@pytest.mark.parametrize(("name", "values"), CASES)
def test_weights_survive_saving(name, values, tmp_path):
    model = build(name, values).eval()
    save_file(own_tensors(model), tmp_path / "weights.safetensors")
    torch.manual_seed(1)
    cls = SYSTEMS.load(name)
    other = cls(cls.Config(**{**SMALL, **values})).eval()
    other.load_state_dict(load_file(tmp_path / "weights.safetensors"), strict=False)
    tokens = torch.randint(VOCABULARY, (2, 6))
    assert torch.equal(model(tokens).logits, other(tokens).logits)


@pytest.mark.parametrize("name", VARIANTS)
def test_masked_tokens_of_one_batch_can_be_overfitted(name):
    torch.manual_seed(0)
    cls = SYSTEMS.load(name)
    model = cls(cls.Config(**SMALL, **LARGE_ENOUGH.get(name, {}), dropout=0.0))
    tokens, places = torch.randint(1, VOCABULARY, (3, 9)), torch.tensor([[1, 4], [2, 8], [5, 6]])
    targets = tokens.gather(1, places).flatten()
    spoilt = tokens.scatter(1, places, 0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0)
    losses = []
    for _ in range(80):
        hidden = model.encode(spoilt, None, None, places).hidden[:, 1:]
        loss = model.masked_loss(hidden.flatten(0, 1), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.25 * losses[0]
