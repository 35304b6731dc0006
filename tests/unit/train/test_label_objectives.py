"""Losses of labels against plain torch; layers that learn slower, later or not at all; and resuming in between."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ensue.data.labelled_rows import IGNORE_INDEX, RowBatches, make_rows
from ensue.data.masking import DocumentTokens, MaskedBatches, MaskingOptions
from ensue.data.tokenizers.special_tokens import SpecialTokens
from ensue.models.bert import BERT, BERTConfig
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.labelled import HeadConfig, Labelled
from ensue.train.checkpoints import Checkpoints
from ensue.train.label_objectives import LabelLoss, span_loss
from ensue.train.layer_unfreezing import LayerUnfreezing
from ensue.train.loop import train
from ensue.train.masked_objectives import masked_language_loss, masked_losses
from ensue.train.optimisers import build_optimiser
from ensue.train.settings import LabelTrainSettings
from ensue.train.training import Training

CHANCE = np.random.default_rng(1)
ROWS = make_rows(
    [(CHANCE.integers(2, 20, size=n), np.zeros(n)) for n in CHANCE.integers(3, 9, size=40)],
    CHANCE.integers(0, 3, size=40),
)


def model_of(dropout=0.1):
    torch.manual_seed(4)
    body = BERT(BERTConfig(vocabulary=20, layers=3, heads=2, hidden=8, context=10, dropout=dropout)).body
    return Labelled(body, HeadConfig(outputs=3, dropout=dropout))


def work(folder, unfreezing=None, objective=None, **settings):
    given = {"steps": 12, "checkpoint_every": 5, "eval_every": 100, "lr": 1e-2, "warmup": 0.0, **settings}
    return Training(
        model=model_of(),
        objective=objective or LabelLoss(),
        batches=RowBatches(ROWS, 40, seed=1),
        settings=LabelTrainSettings(**given),
        checkpoints=Checkpoints(folder / "checkpoints"),
        unfreezing=unfreezing,
    )


# Losses.


def test_labels_weights_and_smoothing():
    logits, targets = torch.randn(6, 4), torch.tensor([0, 1, 3, 3, 2, 0])
    weights = torch.tensor([0.5, 2.0, 1.0, 3.0])
    found = LabelLoss(weights=weights, smoothing=0.1).of(logits, targets, torch.ones(6))
    torch.testing.assert_close(found, F.cross_entropy(logits, targets, weights, label_smoothing=0.1))
    each = -logits.log_softmax(-1)[torch.arange(6), targets]
    torch.testing.assert_close(LabelLoss().of(logits, targets, torch.ones(6)), each.mean())


def test_token_labels_skip_the_ignore_index():
    logits = torch.randn(2, 3, 4)
    targets = torch.tensor([[IGNORE_INDEX, 1, 2], [3, IGNORE_INDEX, IGNORE_INDEX]])
    logs = -logits.log_softmax(-1)
    wanted = (logs[0, 1, 1] + logs[0, 2, 2] + logs[1, 0, 3]) / 3
    torch.testing.assert_close(LabelLoss().of(logits, targets, torch.tensor([3, 1])), wanted)


def test_numbers():
    logits, targets = torch.randn(5, 1), torch.tensor([0.5, 1.0, -2.0, 3.0, 0.0])
    wanted = ((logits[:, 0] - targets) ** 2).mean()
    torch.testing.assert_close(LabelLoss("number").of(logits, targets, torch.ones(5)), wanted)
    torch.testing.assert_close(LabelLoss("number").of(logits, targets.double(), torch.ones(5)), wanted)


def test_spans_exclude_padding():
    logits, lengths = torch.randn(2, 5, 2), torch.tensor([5, 3])
    targets = torch.tensor([[1, 4], [0, 2]])
    wanted = sum(
        F.cross_entropy(logits[row : row + 1, : int(n), end], targets[row : row + 1, end])
        for row, n in enumerate(lengths)
        for end in (0, 1)
    )
    torch.testing.assert_close(span_loss(logits, targets, lengths), wanted / 4)
    junk = logits.clone()
    junk[1, 3:] = 1e4
    torch.testing.assert_close(span_loss(junk, targets, lengths), wanted / 4)


def test_the_language_loss_is_added():
    torch.manual_seed(0)
    body = GPTLanguageModel(GPTConfig(vocabulary=20, layers=1, heads=2, hidden=8, context=10, dropout=0.0))
    model = Labelled(body, HeadConfig(outputs=3, dropout=0.0))
    batch = RowBatches(ROWS, 40).batch(0)
    plain, _ = LabelLoss()(model, batch, None)
    both, _ = LabelLoss(language=0.5)(model, batch, None)
    hidden = model(batch.tokens, batch.segments, batch.lengths).hidden
    torch.testing.assert_close(both, plain + 0.5 * model.language_loss(hidden, batch.tokens, batch.lengths))


def test_the_masked_losses_by_hand():
    tokens = CHANCE.integers(6, 20, size=120).astype(np.int32)
    text = DocumentTokens(tokens, np.arange(0, 121, 10), np.array([0, 6, 12]))
    marks = SpecialTokens(start=2, separator=3, end=3, double_separator=False, mask=4, pad=0)
    rows = MaskedBatches(text, marks, 20, rows=4, length=24, pairs="random", masking=MaskingOptions())
    torch.manual_seed(0)
    model = BERT(BERTConfig(vocabulary=20, layers=2, heads=2, hidden=8, context=24, dropout=0.0))
    batch = rows.batch(0)
    logits = model(batch.tokens, None, batch.lengths, segments=batch.segments).logits.log_softmax(-1)
    row = batch.is_masked.nonzero()[:, 0]
    wanted = -logits[row, batch.positions[batch.is_masked], batch.targets].mean()
    fill, follow = masked_losses(model, batch)
    torch.testing.assert_close(fill, wanted)
    first = model.body(batch.tokens, batch.segments, batch.lengths).hidden[:, 0]
    torch.testing.assert_close(follow, F.cross_entropy(model.next(model.body.pool(first)), batch.not_next))
    torch.testing.assert_close(masked_language_loss(model, batch, None)[0], fill + follow)


# Which layers learn.


def test_rates_fall_towards_the_embeddings():
    """With plain gradient descent a parameter moves by its rate times its gradient."""
    model = model_of(dropout=0.0)
    scales = LayerUnfreezing(model.depths(), decay=0.5).scales()
    assert {scales[name] for name in scales} == {1.0, 0.5, 0.25, 0.125, 0.0625}
    assert scales["body.embed.weight"] == 0.0625 and scales["body.blocks.2.feed.up.weight"] == 0.5
    optimiser = build_optimiser(model, LabelTrainSettings(optimiser="sgd", lr=1.0), scales)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    loss, _ = LabelLoss()(model, RowBatches(ROWS, 40).batch(0), None)
    loss.backward()
    for group in optimiser.param_groups:
        group["lr"] = 0.2 * group["scale"]
    optimiser.step()
    for name, value in model.named_parameters():
        torch.testing.assert_close(value, before[name] - 0.2 * scales[name] * value.grad)


def test_the_loop_gives_each_group_its_rate(tmp_path):
    model = model_of()
    whole = work(
        tmp_path / "a", LayerUnfreezing(model.depths(), decay=0.5), optimiser="sgd", steps=1, clip=0.0, lr=100.0
    )
    plain = work(tmp_path / "b", optimiser="sgd", steps=1, clip=0.0, lr=100.0)
    start = dict(model.named_parameters())
    for one in (whole, plain):
        torch.manual_seed(7)
        train(one)
    slow, fast = (dict(one.model.named_parameters()) for one in (whole, plain))
    for name, ratio in (("out", 1.0), ("body.blocks.2.attention.out", 0.5), ("body.blocks.0.attention.out", 0.125)):
        name += ".weight"
        moved = [(one[name] - start[name]).norm().item() for one in (slow, fast)]
        assert moved[0] == pytest.approx(ratio * moved[1], rel=0.02)


def test_layers_are_unfrozen_from_the_top():
    unfreezing = LayerUnfreezing({"a": 0, "b": 1, "c": 2, "head": 3}, frozen=3, every=4)
    assert [unfreezing.boundary(step) for step in (0, 3, 4, 8, 12, 99)] == [3, 3, 2, 1, 0, 0]
    assert [LayerUnfreezing({}, frozen=2).boundary(step) for step in (0, 99)] == [2, 2]


def test_frozen_layers_change_once_they_are_unfrozen(tmp_path):
    training = work(tmp_path, steps=12)
    training.unfreezing = LayerUnfreezing(training.model.depths(), frozen=4, every=3)
    seen = []
    held = training.objective

    def objective(model, batch, state):
        seen.append({name: value.detach().clone() for name, value in model.named_parameters()})
        return held(model, batch, state)

    training.objective = objective
    train(training)
    seen.append(dict(training.model.named_parameters()))
    for step, (before, after) in enumerate(itertools.pairwise(seen)):
        boundary = max(0, 4 - step // 3)
        for name, depth in training.model.depths().items():
            changed = not torch.equal(before[name], after[name])
            still = name.startswith("body.segments") or (name.startswith("body.positions") and changed)
            assert still or changed == (depth >= boundary), (step, name)


class Broken(Exception):
    pass


@pytest.mark.parametrize("at", [2, 6, 8, 11])
def test_a_run_interrupted_while_layers_are_frozen_resumes_to_the_same_bits(tmp_path, at):
    depths = model_of().depths()
    calls = SimpleNamespace(count=0)

    def breaking(model, batch, state):
        calls.count += 1
        if calls.count == at:
            raise Broken
        return LabelLoss()(model, batch, state)

    unfreezing = LayerUnfreezing(depths, decay=0.8, frozen=4, every=3)
    torch.manual_seed(9)
    whole = work(tmp_path / "whole", unfreezing)
    train(whole)
    torch.manual_seed(9)
    with pytest.raises(Broken):
        train(work(tmp_path / "broken", unfreezing, breaking))
    resumed = work(tmp_path / "broken", unfreezing)
    train(resumed)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters()):
        assert torch.equal(one, other)
