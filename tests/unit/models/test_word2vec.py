"""word2vec: its loops against autograd, what they sample, and the vectors they learn."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.models import word2vec_loops as loops
from ensue.models.laws import findings
from ensue.models.word2vec import Word2Vec, Word2VecConfig
from ensue.models.word2vec_training import CHUNK_WORDS, Word2VecTrainer, alias_table, thresholds


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


def chunk_of(words, V, U, seed, window=1, dynamic=True, rate=0.05):
    """A chunk without subsampling, at a constant rate."""
    keep, random = np.full(len(V), loops.WHOLE, np.int64), np.array([seed], np.uint64)
    return loops.Chunk(np.array(words, np.int32), V, U, keep, window, dynamic, rate, 0.0, random, np.zeros(2))


@pytest.mark.parametrize(("n", "m", "width"), [(1, 1, 4), (2, 3, 10), (3, 6, 33), (5, 7, 8), (4, 2, 100)])
def test_a_step_of_negative_sampling_equals_autograd(n, m, width):
    model = model_of(embedding=width)
    near, outputs = np.array([3, 1, 3, 0, 8][:n], np.int32), np.array([5, 2, 1, 2, 7, 0, 4][:m], np.int32)
    loss = model.sampling_loss(model.embed(torch.from_numpy(near).long()), torch.from_numpy(outputs).long())
    expected = stepped(model, loss, 0.05)
    V, U = matrices(model)
    loops.update(V, near, n, U, outputs, m, np.float32(0.05), V, near, loops.workspace(n, m, width))
    for got, want in zip((V, U), expected):
        np.testing.assert_allclose(got, want, atol=1e-6)


def test_the_reported_loss_is_that_of_the_window():
    model, reported, work = model_of(), np.zeros(2), loops.workspace(2, 3, 10)
    near, outputs = np.array([3, 1], np.int32), np.array([5, 2, 1], np.int32)
    loss = model.sampling_loss(model.embed(torch.from_numpy(near).long()), torch.from_numpy(outputs).long())
    V, U = matrices(model)
    loops.update(V, near, 2, U, outputs, 3, np.float32(0.1), V, near, work)
    loops.add_loss(work.weights, 2, 3, np.float32(0.1), reported)
    assert reported[0] == pytest.approx(loss.item(), rel=1e-4) and reported[1] == 2


def test_a_step_of_cbow_equals_autograd():
    """The test samples the same noise from the same random numbers."""
    model, table = model_of(mode="cbow"), alias_table(np.full(9, 7), 0.75)
    random = np.array([77], np.uint64)
    V, U = matrices(model)
    for centre, near in ((4, [0]), (0, [4, 6]), (6, [0])):
        outputs = np.empty(4, np.int32)
        m = loops.sample_noise(centre, table, random, outputs)
        loops.draw(random)  # the window is sampled, and is always 1
        given = model.embed(torch.tensor(near)).mean(0, keepdim=True)
        after = stepped(model, model.sampling_loss(given, torch.from_numpy(outputs[:m].copy()).long()), 0.05)
        for weight, value in zip((model.embed.weight, model.head.weight), after):
            weight.data = torch.from_numpy(value.copy())
    first, second = V.copy(), U.copy()
    loops.cbow(chunk_of([4, 0, 6], first, second, 77), 3, table)
    for got, want in zip((first, second), matrices(model)):
        np.testing.assert_allclose(got, want, atol=1e-6)


@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
def test_the_exact_softmax_follows_its_gradient_in_double_precision(mode):
    """R7–R9: every step over a short text against autograd."""
    model = model_of(dtype=torch.float64, mode=mode, objective="softmax")
    words = [3, 1, 4, 1, -1, 5, 8, 2]
    V, U = (matrix.copy() for matrix in matrices(model))
    loop = loops.softmax_skipgram if mode == "skipgram" else loops.softmax_cbow
    chunk, losses = chunk_of(words, V, U, 1, window=2, dynamic=False, rate=0.1), []
    loop(chunk)
    for position, centre in enumerate(words):
        sentence = range(4) if position < 4 else range(5, 8)
        near = [words[i] for i in sentence if i != position and abs(i - position) <= 2]
        if centre < 0:
            continue
        given, wanted = ([centre], near) if mode == "skipgram" else (near, [centre])
        loss = model.softmax_loss(model.embed(torch.tensor(given)).mean(0), torch.tensor(wanted))
        losses.append(loss.item())
        for weight, value in zip((model.embed.weight, model.head.weight), stepped(model, loss, 0.1)):
            weight.data = torch.from_numpy(value.copy())
    for got, want in zip((V, U), matrices(model)):
        np.testing.assert_allclose(got, want, atol=1e-12)
    assert chunk.loss[0] == pytest.approx(sum(losses), abs=1e-10)


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


def test_noise_follows_counts_and_is_never_the_centre():
    counts = np.array([1000, 200, 50, 0, 5])
    table, random = alias_table(counts, 0.75), np.array([9], np.uint64)
    drawn, outputs = np.zeros(5, int), np.empty(1001, np.int32)
    for _ in range(200):
        m = loops.sample_noise(1, table, random, outputs)
        assert outputs[0] == 1 and 1 not in outputs[1:m]
        drawn += np.bincount(outputs[1:m], minlength=5)
    share = counts**0.75
    share[1] = 0
    np.testing.assert_allclose(drawn / drawn.sum(), share / share.sum(), atol=0.005)
    assert drawn[3] == 0


def test_frequent_words_are_dropped_as_often_as_the_paper_says():
    counts = np.array([90_000, 9_000, 1_000])
    keep, random = thresholds(counts, 1e-2), np.array([5], np.uint64)
    words = np.repeat([0, 1, 2, -1], [90_000, 9_000, 1_000, 10]).astype(np.int32)
    left = loops.subsample(words, keep, random)
    share = 1e-2 / (counts / counts.sum())
    expected = np.minimum(np.sqrt(share) + share, 1) * counts
    np.testing.assert_allclose([(left == word).sum() for word in range(3)], expected, rtol=0.05)
    assert (left == -1).sum() == 10
    assert (thresholds(counts, 0.0) == loops.WHOLE).all()


def test_windows_end_with_the_sentence():
    words, random, near = (
        np.array([1, 2, -1, 3, 4, 5, 6, -1], np.int32),
        np.array([1], np.uint64),
        np.empty(10, np.int32),
    )
    for position, window, expected in ((0, 5, {2}), (4, 1, {3, 5}), (3, 5, {4, 5, 6}), (6, 2, {5, 4})):
        n = loops.neighbours(words, position, window, False, random, near)
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
    counts = np.bincount(words[words >= 0], minlength=10)
    trainer = Word2VecTrainer(model, words, counts, lr=0.05, subsample=0.0, seed=seed, threads=threads)
    losses = [trainer.update(step, step / steps, (step + 1) / steps)[0] for step in range(steps)]
    return model, losses


@pytest.mark.parametrize("objective", ["negative", "softmax"])
@pytest.mark.parametrize("mode", ["skipgram", "cbow"])
@pytest.mark.parametrize("threads", [1, 2])
def test_words_of_one_topic_get_similar_vectors(mode, objective, threads):
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


def test_chunks_cover_the_text_again_and_again(monkeypatch):
    words = np.zeros(CHUNK_WORDS + 5, np.int32)
    trainer = Word2VecTrainer(model_of(2), words, np.array([len(words), 1]), subsample=1e-9)
    seen = []
    monkeypatch.setattr(trainer, "_train_part", lambda rate, decay, part, seed: seen.append(len(part)) or np.ones(2))
    assert trainer.steps_per_epoch == 2
    for step in range(4):
        trainer.update(step, step / 4, (step + 1) / 4)
    assert seen == [CHUNK_WORDS, 5, CHUNK_WORDS, 5]


def test_the_rate_falls_linearly_to_its_floor():
    trainer = Word2VecTrainer(model_of(), np.zeros(3, np.int32), np.full(9, 1), lr=0.1, floor=0.05)
    assert [round(trainer.rate(step / 10), 6) for step in (0, 5, 9, 10)] == [0.1, 0.05, 0.01, 0.005]


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


def test_it_keeps_the_laws_of_models():
    assert all(finding.kept for finding in findings(model_of()))


def test_invalid_settings_are_refused():
    for wrong in ({"mode": "glove"}, {"objective": "tree"}, {"window": 0}, {"negative": 0}, {"power": -1.0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            Word2VecConfig(**wrong)
