"""Models that label: what stands for a text, heads of every kind, the auxiliary loss, and how deep layers lie."""

import pytest
import torch
from torch.nn import functional as F

from ensue.models.bert import BERT, BERTConfig, RoBERTa, RoBERTaConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import HeadConfig, Labelled, pool
from ensue.models.laws import labelled_laws
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel

V, T = 23, 9
LENGTHS = torch.tensor([9, 3, 1, 6])
TOKENS = torch.randint(V, (4, T), generator=torch.Generator().manual_seed(2))
BODIES = {
    "bert": lambda: BERT(BERTConfig(vocabulary=V, layers=2, heads=2, hidden=8, context=12)).body,
    "roberta": lambda: RoBERTa(RoBERTaConfig(vocabulary=V, layers=2, heads=2, hidden=8, context=12)).body,
    "distilbert": lambda: (
        BERT(
            BERTConfig(
                vocabulary=V, layers=1, heads=2, hidden=8, context=12, segments=0, pooled=False, next_sentence=False
            )
        ).body
    ),
    "gpt": lambda: GPTLanguageModel(GPTConfig(vocabulary=V, layers=2, heads=2, hidden=8, context=12)),
    "lstm": lambda: LSTMLanguageModel(LSTMConfig(vocabulary=V, layers=2, hidden=8)),
}


def labelled(name, choices=1, **head):
    torch.manual_seed(0)
    made = Labelled(BODIES[name](), HeadConfig(**{"outputs": 3, **head}), choices)
    for weight in made.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.4)
    return made.eval()


@pytest.mark.parametrize("pooling", ["first", "last", "mean", "max"])
def test_poolings_by_hand(pooling):
    hidden = torch.randn(4, T, 5)
    found = pool(hidden, LENGTHS, pooling)
    for row, length in enumerate(LENGTHS.tolist()):
        real = hidden[row, :length]
        wanted = {"first": real[0], "last": real[-1], "mean": real.mean(0), "max": real.amax(0)}[pooling]
        torch.testing.assert_close(found[row], wanted)
    torch.testing.assert_close(pool(hidden, None, pooling), pool(hidden, torch.full((4,), T), pooling))


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize(
    "head",
    [
        {},
        {"pooling": "mean"},
        {"pooling": "max", "dense": "relu"},
        {"pooling": "last", "dense": "tanh"},
        {"pooling": "concat", "dense": "relu", "hidden": 5, "norm": "batch"},
        {"kind": "token"},
        {"kind": "span", "outputs": 2},
        {"kind": "choice", "outputs": 1, "choices": 4},
    ],
    ids=str,
)
def test_neither_padding_nor_other_rows_change_a_rows_output(name, head):
    model = labelled(name, **head)
    for seed in range(2):
        for found in labelled_laws(model, seed):
            assert found.kept, found


def test_a_model_that_reads_padding_fails_its_law():
    class Careless(Labelled):
        def forward(self, tokens, segments=None, lengths=None, **how):
            return super().forward(tokens, segments, None, **how)

    model = Careless(BODIES["bert"](), HeadConfig(outputs=2, pooling="mean"))
    assert not all(found.kept for found in labelled_laws(model))


@pytest.mark.parametrize(
    ("name", "pooling", "dense"),
    [
        ("bert", "first", "tanh"),
        ("roberta", "first", "tanh"),
        ("distilbert", "first", "relu"),
        ("gpt", "last", "none"),
        ("lstm", "max", "none"),
    ],
)
def test_heads_are_as_each_system_has_them(name, pooling, dense):
    model = labelled(name)
    assert (model.config.pooling, model.config.dense) == (pooling, dense)
    assert (model.dense is None) == (name == "bert" or dense == "none")  # bert's own pooling is its dense layer
    assert labelled(name, kind="token").dense is None


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt"])
def test_a_head_by_hand(name):
    model = labelled(name)
    if name == "gpt":
        x = model.body(TOKENS, None, LENGTHS, want=("hidden",)).hidden[torch.arange(4), LENGTHS - 1]
    else:
        x = model.body(TOKENS, None, LENGTHS).hidden[:, 0]
        x = torch.tanh((model.body.pooler if name == "bert" else model.dense)(x))
    torch.testing.assert_close(model(TOKENS, None, LENGTHS).logits, model.out(x))


def test_returning_layers_or_attention_changes_no_output():
    model = labelled("bert")
    plain = model(TOKENS, None, LENGTHS)
    looked = model(TOKENS, None, LENGTHS, layers=True, weights=True)
    torch.testing.assert_close(plain.logits, looked.logits)
    assert plain.hidden.shape == (4, 1, 8) and looked.hidden.shape == (4, T, 8)
    assert len(looked.layers) == 3 and len(looked.attention) == 2


def test_choices_are_compared_within_an_example():
    model = labelled("bert", choices=2, kind="choice", outputs=1)
    rows = labelled("bert", outputs=1)
    rows.load_state_dict(model.state_dict())
    torch.testing.assert_close(model(TOKENS, None, LENGTHS).logits, rows(TOKENS, None, LENGTHS).logits.view(2, 2))


@pytest.mark.parametrize("name", ["gpt", "lstm"])
def test_the_auxiliary_loss_is_that_of_the_next_token(name):
    model = labelled(name)
    logits = model.body(TOKENS, None, LENGTHS).logits.log_softmax(-1)
    wanted = [
        -logits[row, place, TOKENS[row, place + 1]]
        for row, length in enumerate(LENGTHS.tolist())
        for place in range(length - 1)
    ]
    found = model.language_loss(model(TOKENS, None, LENGTHS).hidden, TOKENS, LENGTHS)
    torch.testing.assert_close(found, torch.stack(wanted).mean())
    found.backward()
    assert F.cosine_similarity(model.body.embed.weight.grad.flatten(), torch.ones(V * 8), dim=0).isfinite()


@pytest.mark.parametrize("name", BODIES)
def test_depths_of_parameters(name):
    model = labelled(name)
    depths = model.depths()
    assert depths.keys() == dict(model.named_parameters()).keys()
    layers = 1 if name == "distilbert" else 2
    assert set(depths.values()) == set(range(layers + 2))
    for parameter, depth in depths.items():
        if parameter.startswith(("out.", "dense.", "body.pooler", "body.norm.")) and name != "bert":
            assert depth == (0 if parameter.startswith("body.norm.") and name != "gpt" else layers + 1), parameter
        if "embed" in parameter or "positions" in parameter or "segments" in parameter:
            assert depth == 0
        for layer in range(layers):
            if f"blocks.{layer}." in parameter or f"stack.layers.{layer}." in parameter:
                assert depth == layer + 1
    if name == "bert":
        assert depths["body.pooler.weight"] == depths["out.bias"] == 3 and depths["body.norm.weight"] == 0


def test_a_normed_head_by_hand():
    model = labelled("lstm", pooling="concat", dense="relu", hidden=5, norm="batch", dropout=0.0).train()
    hidden = torch.randn(4, T, 8)

    def normed(x):
        return (x - x.mean(0)) / (x.var(0, unbiased=False) + 1e-5).sqrt()

    x = torch.relu(model.dense(normed(pool(hidden, LENGTHS, "concat"))))
    torch.testing.assert_close(model.label(hidden, LENGTHS), model.out(normed(x)), rtol=1e-4, atol=1e-4)
    body = BODIES["lstm"]()
    body.dropout.p = body.dropout_out.p = 0.35
    Labelled(body, HeadConfig(outputs=3, pooling="concat", norm="batch"))
    assert body.dropout_out.p == 0.0  # what is switched off before a norm would change the variance it learns
    assert body.dropout.p == 0.35
    assert Labelled(BODIES["lstm"](), HeadConfig(outputs=3, kind="token", norm="batch")).config.norm == "none"
