"""word2vec: its loops against autograd, what they draw, and what comes of them."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.models import word2vec_loops as loops
from ensue.models.laws import findings
from ensue.models.word2vec import Word2Vec, Word2VecConfig
from ensue.models.word2vec_training import STRETCH, Learning, Word2VecTrainer, alias_table, thresholds

ALL = loops.WHOLE


def model_of(vocabulary=9, embedding=10, dtype=torch.float32, **how):
    model = Word2Vec(Word2VecConfig(vocabulary=vocabulary, embedding=embedding, **how)).to(dtype)
    torch.nn.init.normal_(model.embed.weight, std=0.5)
    torch.nn.init.normal_(model.head.weight, std=0.5)
    return model


def matrices(model):
    return model.embed.weight.detach().numpy(), model.head.weight.detach().numpy()


def stepped(model, loss, rate):
    """Both matrices after one step of plain gradient descent."""
    by = torch.autograd.grad(loss, [model.embed.weight, model.head.weight], allow_unused=True)
    pairs = zip((model.embed.weight, model.head.weight), by)
    return [
        (weight - rate * gradient if gradient is not None else weight).detach().numpy() for weight, gradient in pairs
    ]


def room(n, m, width):
    shape = (np.empty((m, width), np.float32), np.arange(m).astype(np.int32))
    return (*shape, np.empty(n * m, np.float32), np.empty(n * m, np.int32))


@pytest.mark.parametrize(("n", "m", "width"), [(1, 1, 4), (2, 3, 10), (3, 6, 33), (5, 7, 8), (4, 2, 100)])
def test_a_step_of_negative_sampling_is_that_of_autograd(n, m, width):
    model = model_of(embedding=width)
    near, outputs = np.array([3, 1, 3, 0, 8][:n], np.int32), np.array([5, 2, 1, 2, 7, 0, 4][:m], np.int32)
    loss = model.sampling_loss(model.embed(torch.from_numpy(near).long()), torch.from_numpy(outputs).long())
    expected = stepped(model, loss, 0.05)
    V, U = matrices(model)
    loops.update(V, near, n, U, outputs, m, np.float32(0.05), V, near, *room(n, m, width))
    for got, want in zip((V, U), expected):
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_the_loss_that_is_told_is_that_of_the_window():
    model, told = model_of(), np.zeros(2)
    near, outputs = np.array([3, 1], np.int32), np.array([5, 2, 1], np.int32)
    loss = model.sampling_loss(model.embed(torch.from_numpy(near).long()), torch.from_numpy(outputs).long())
    V, U = matrices(model)
    rows, order, weights, bits = room(2, 3, 10)
    loops.update(V, near, 2, U, outputs, 3, np.float32(0.1), V, near, rows, order, weights, bits)
    loops.tell(weights, 2, 3, np.float32(0.1), told)
    assert told[0] == pytest.approx(loss.item(), rel=1e-4) and told[1] == 2


def test_a_step_of_cbow_is_that_of_autograd():
    """One centre, whose noise is told from the stream of random numbers."""
    model, table = model_of(mode="cbow"), alias_table(np.full(9, 7), 0.75)
    words = np.array([4, 0, 6], np.int32)
    everything, random = np.full(9, ALL, np.int64), np.array([77], np.uint64)
    V, U = matrices(model)
    for centre, near in ((4, [0]), (0, [4, 6]), (6, [0])):
        outputs = np.empty(4, np.int32)
        m = loops.noise(centre, 3, table, random, outputs)
        loops.draw(random)  # the window is drawn, and is always 1
        given = model.embed(torch.tensor(near)).mean(0, keepdim=True)
        after = stepped(model, model.sampling_loss(given, torch.from_numpy(outputs[:m].copy()).long()), 0.05)
        for weight, value in zip((model.embed.weight, model.head.weight), after):
            weight.data = torch.from_numpy(value.copy())
    first, second = V.copy(), U.copy()
    told = np.zeros(2)
    loops.cbow(words, first, second, everything, table, 1, True, 3, 0.05, 0.0, np.array([77], np.uint64), told)
    for got, want in zip((first, second), matrices(model)):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
def test_the_exact_softmax_goes_down_its_gradient_in_double_precision(mode):
    """R7–R9: every step over a short text against autograd."""
    model = model_of(dtype=torch.float64, mode=mode, objective="softmax")
    words = [3, 1, 4, 1, -1, 5, 8, 2]
    V, U = (matrix.copy() for matrix in matrices(model))
    loop = loops.softmax_skipgram if mode == "skipgram" else loops.softmax_cbow
    told, losses, everything = np.zeros(2), [], np.full(9, ALL, np.int64)
    loop(np.array(words, np.int32), V, U, everything, 2, False, 0.1, 0.0, np.array([1], np.uint64), told)
    for place, centre in enumerate(words):
        sentence = range(4) if place < 4 else range(5, 8)
        near = [words[at] for at in sentence if at != place and abs(at - place) <= 2]
        if centre < 0:
            continue
        given, wanted = ([centre], near) if mode == "skipgram" else (near, [centre])
        loss = model.softmax_loss(model.embed(torch.tensor(given)).mean(0), torch.tensor(wanted))
        losses.append(loss.item())
        for weight, value in zip((model.embed.weight, model.head.weight), stepped(model, loss, 0.1)):
            weight.data = torch.from_numpy(value.copy())
    for got, want in zip((V, U), matrices(model)):
        np.testing.assert_allclose(got, want, atol=1e-12)
    assert told[0] == pytest.approx(sum(losses), abs=1e-10)


def test_the_gradient_of_the_exact_softmax_is_its_slope():
    model = model_of(vocabulary=5, embedding=3, dtype=torch.float64)
    wanted = torch.tensor([1, 4, 4])
    assert torch.autograd.gradcheck(
        lambda v, u: -(u @ v).log_softmax(0)[wanted].sum(),
        (model.embed.weight[2].detach().requires_grad_(), model.head.weight.detach().requires_grad_()),
    )


def test_the_logistic_function():
    scores = np.linspace(-80, 80, 4001).astype(np.float32)
    got = scores.copy()
    loops.logistic(got, len(got), np.empty(len(got), np.int32))
    np.testing.assert_allclose(got, 1 / (1 + np.exp(-scores.astype(np.float64))), rtol=4e-6, atol=1e-12)


def test_noise_follows_counts_and_never_is_the_centre():
    counts = np.array([1000, 200, 50, 0, 5])
    table, random = alias_table(counts, 0.75), np.array([9], np.uint64)
    drawn = np.zeros(5, int)
    outputs = np.empty(1001, np.int32)
    for _ in range(200):
        m = loops.noise(1, 1000, table, random, outputs)
        assert outputs[0] == 1 and 1 not in outputs[1:m]
        drawn += np.bincount(outputs[1:m], minlength=5)
    share = counts**0.75
    share[1] = 0
    np.testing.assert_allclose(drawn / drawn.sum(), share / share.sum(), atol=0.005)
    assert drawn[3] == 0


def test_frequent_words_are_left_out_as_often_as_the_paper_says():
    counts = np.array([90_000, 9_000, 1_000])
    keep, random = thresholds(counts, 1e-2), np.array([5], np.uint64)
    words = np.repeat([0, 1, 2, -1], [90_000, 9_000, 1_000, 10]).astype(np.int32)
    kept = np.empty(len(words), np.int32)
    left = kept[: loops.thin(words, keep, random, kept)]
    share = 1e-2 / (counts / counts.sum())
    expected = np.minimum(np.sqrt(share) + share, 1) * counts
    np.testing.assert_allclose([(left == word).sum() for word in range(3)], expected, rtol=0.05)
    assert (left == -1).sum() == 10
    assert (thresholds(counts, 0.0) == ALL).all()


def test_windows_end_with_the_sentence():
    words, near = np.array([1, 2, -1, 3, 4, 5, 6, -1], np.int32), np.empty(10, np.int32)
    for place, reach, expected in ((0, 5, {2}), (4, 1, {3, 5}), (3, 5, {4, 5, 6}), (6, 2, {5, 4})):
        n = loops.company(words, len(words), place, reach, near)
        assert set(near[:n].tolist()) == expected


def topics(lines=300, seed=0):
    """Sentences of words 0–4 or of words 5–9, never of both."""
    chance = np.random.default_rng(seed)
    return np.concatenate([[*chance.integers(5, size=6) + 5 * (line % 2), -1] for line in range(lines)]).astype(
        np.int32
    )


def trained(mode="skipgram", objective="negative", seed=0, threads=1, steps=20):
    torch.manual_seed(0)
    model = Word2Vec(Word2VecConfig(vocabulary=10, embedding=8, mode=mode, objective=objective))
    words = topics()
    how = Learning(lr=0.05, subsample=0.0, seed=seed, threads=threads)
    trainer = Word2VecTrainer(model, words, np.bincount(words[words >= 0], minlength=10), how)
    losses = [trainer.update(step, steps)[0] for step in range(steps)]
    return model, losses


@pytest.mark.parametrize("objective", ["negative", "softmax"])
@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
@pytest.mark.parametrize("threads", [1, 2])
def test_words_of_one_topic_come_to_lie_together(mode, objective, threads):
    model, losses = trained(mode, objective, threads=threads)
    unit = torch.nn.functional.normalize(model.embed.weight.detach(), dim=1)
    cosines = unit @ unit.T
    same, other = cosines[:5, :5].sum().item() / 25, cosines[:5, 5:].mean().item()
    assert same > other + 0.5
    assert losses[-1] < 0.97 * losses[0]


def test_one_thread_gives_the_same_bits_twice_and_another_seed_others():
    first, again, other = (trained(seed=seed, steps=4)[0] for seed in (0, 0, 1))
    assert torch.equal(first.embed.weight, again.embed.weight) and torch.equal(first.head.weight, again.head.weight)
    assert not torch.equal(first.embed.weight, other.embed.weight)


def test_stretches_go_through_the_text_again_and_again(monkeypatch):
    words = np.zeros(STRETCH + 5, np.int32)
    trainer = Word2VecTrainer(model_of(2), words, np.array([len(words), 1]), Learning(subsample=1e-9))
    seen = []
    monkeypatch.setattr(trainer, "_part", lambda part, *how: seen.append(len(part)) or np.ones(2))
    assert trainer.steps_per_epoch == 2
    for step in range(4):
        trainer.update(step, 4)
    assert seen == [STRETCH, 5, STRETCH, 5]


def test_the_rate_falls_in_a_straight_line_to_its_floor():
    trainer = Word2VecTrainer(model_of(), np.zeros(3, np.int32), np.full(9, 1), Learning(lr=0.1, floor=0.05))
    assert [round(trainer.rate(step, 10), 6) for step in (0, 5, 9, 10)] == [0.1, 0.05, 0.01, 0.005]


def test_probabilities_are_the_softmax_of_the_lectures_and_sum_to_one():
    """R8: P(o | c) = exp(u_o · v_c) / Σ_w exp(u_w · v_c)."""
    model = model_of(dtype=torch.float64)
    V, U = matrices(model)
    found = model.log_probabilities([4]).exp().numpy()
    np.testing.assert_allclose(found, np.exp(U @ V[4]) / np.exp(U @ V[4]).sum(), atol=1e-12)
    both = model.log_probabilities([4, 2]).exp().numpy()
    np.testing.assert_allclose(both, np.exp(U @ V[[4, 2]].mean(0)) / np.exp(U @ V[[4, 2]].mean(0)).sum(), atol=1e-12)
    model.counts.copy_(torch.arange(9))
    weighed = model.log_probabilities([4], of_text=True).exp().numpy()
    share = np.arange(9) ** 0.75 * np.exp(U @ V[4])
    np.testing.assert_allclose(weighed, share / share.sum(), atol=1e-12)
    softmax = model_of(dtype=torch.float64, objective="softmax")
    assert torch.equal(softmax.log_probabilities([4], of_text=True), softmax.log_probabilities([4]))


def test_it_keeps_the_laws_of_a_model():
    assert all(finding.kept for finding in findings(model_of()))


def test_settings_that_cannot_be():
    for wrong in ({"mode": "glove"}, {"objective": "tree"}, {"window": 0}, {"negative": 0}, {"power": -1.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Word2VecConfig(**wrong)
