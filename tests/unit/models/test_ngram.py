"""The n-gram model: lecture examples, the four laws, sums to one, never infinite, storing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ensue.core.errors import InputError
from ensue.models.ngram import Mode, NGram, NGramConfig, ngrams
from ensue.nn.recent import RecentTokens
from ensue.train.counting import count

MODES: tuple[Mode, ...] = ("kneser-ney", "backoff", "add", "mle")


def words_of(text: str) -> list[str]:
    return text.split()


def fitted(stream: Sequence[int], **settings: Any) -> NGram:
    counter = NGram(NGramConfig(**settings)).counter()
    count(counter, np.array(stream, np.int64))
    return counter.finish()


def spoken(sentences: Sequence[str], **settings: Any) -> tuple[NGram, dict[str, int]]:
    """A model of white-space separated sentences; the end token is 0."""
    ids = {"</s>": 0}
    stream = [0]
    for sentence in sentences:
        stream += [ids.setdefault(word, len(ids)) for word in sentence.split()] + [0]
    return fitted(stream, vocabulary=len(ids), end=0, **settings), ids


def after(model: NGram, context: Sequence[int]) -> Tensor:
    """P(· | context), the context not preceded by anything."""
    empty = RecentTokens.empty(1, model.config.order - 1)
    logits = model(torch.tensor([list(context)], dtype=torch.int64), empty, want=("last",)).logits
    return logits[0, 0].double().exp()


def streams(vocabulary: int, end: int) -> st.SearchStrategy[list[int]]:
    body = st.lists(st.integers(0, vocabulary - 1), max_size=40)
    return body.map(lambda tokens: [end, *tokens, end] if end >= 0 else tokens)


def zipf(rng: np.random.Generator, sentences: int, vocabulary: int) -> list[int]:
    stream = [0]
    for _ in range(sentences):
        stream += [*(1 + rng.zipf(1.4, rng.integers(1, 12)) % (vocabulary - 1)).tolist(), 0]
    return stream


def test_ngrams_of_the_students_opened_their_are_four_three_two_one() -> None:
    words = words_of("the students opened their")
    assert [len(ngrams(words, order)) for order in (1, 2, 3, 4)] == [4, 3, 2, 1]
    assert ngrams(words, 2)[0] == ("the", "students")
    assert ngrams(words, 5) == []


def test_mle_four_gram_of_students_opened_their() -> None:
    endings = ["books"] * 400 + ["exams"] * 100 + ["minds"] * 500
    model, ids = spoken([f"students opened their {word}" for word in endings], order=4, mode="mle")
    context = [ids[word] for word in words_of("students opened their")]
    assert after(model, context)[ids["books"]].item() == pytest.approx(0.4, abs=1e-6)
    assert after(model, context)[ids["exams"]].item() == pytest.approx(0.1, abs=1e-6)


def test_only_the_last_three_words_of_a_long_context_matter() -> None:
    sentences = [
        "as the proctor started the clock the students opened their exams",
        "students opened their books",
    ]
    model, ids = spoken(sentences, order=4, mode="mle")
    short = [ids[word] for word in words_of("students opened their")]
    long = [ids[word] for word in words_of("as the proctor started the clock the students opened their")]
    assert torch.equal(after(model, short), after(model, long))
    assert after(model, long)[ids["exams"]].item() == pytest.approx(0.5)


@pytest.mark.parametrize("mode", MODES)
def test_dog_follows_the_more_often_than_the_does(mode: Mode) -> None:
    model, ids = spoken(["the dog saw the cat", "the dog ran"], order=2, mode=mode)
    following = after(model, [ids["the"]])
    assert following[ids["dog"]] > following[ids["the"]]


def test_unseen_context_is_shortened() -> None:
    model, ids = spoken(["they opened their books", "students read"], order=4, mode="mle")
    unseen = [ids[word] for word in words_of("students opened their")]
    assert torch.equal(after(model, unseen), after(model, unseen[1:]))
    assert after(model, unseen)[ids["books"]].item() == pytest.approx(1.0)


def test_kneser_ney_by_hand() -> None:
    """Stream ``a b a b``, in one sentence, bigrams: all discounts stand in (0.5 and 1)."""
    model, ids = spoken(["a b a b"], order=2)
    a, b, end = ids["a"], ids["b"], 0
    # Different words before: a after {<s>, b}, b after {a}, </s> after {b}; 4 in all. Discounts: 1, 0.5, 0.5.
    uniform = 2 / 4 / 3
    p_a, p_b, p_end = (2 - 1) / 4 + uniform, (1 - 0.5) / 4 + uniform, (1 - 0.5) / 4 + uniform
    assert after(model, [])[[a, b, end]].tolist() == pytest.approx([p_a, p_b, p_end])
    # After b: a once, </s> once; γ(b) = (0.5 + 0.5) / 2.
    expected = [0.25 + 0.5 * p_a, 0.5 * p_b, 0.25 + 0.5 * p_end]
    assert after(model, [b])[[a, b, end]].tolist() == pytest.approx(expected)
    # After a: b twice; γ(a) = 1 / 2.
    assert after(model, [a])[[a, b, end]].tolist() == pytest.approx([0.5 * p_a, 0.5 + 0.5 * p_b, 0.5 * p_end])
    assert model.notes == ["too few n-grams to estimate the discounts of order 1, 2: 0.5, 1 and 1.5 stand in"]


def test_discounts_are_estimated_where_they_can_be() -> None:
    rng = np.random.default_rng(0)
    model = fitted(zipf(rng, 600, 200), vocabulary=200, order=2, end=0)
    assert model.notes == []


@settings(max_examples=60, deadline=None)
@given(
    st.integers(2, 6).flatmap(
        lambda size: st.tuples(st.just(size), st.sampled_from([-1, 0]), st.integers(1, 5), st.data())
    ),
    st.sampled_from(MODES),
)
def test_every_distribution_sums_to_one_and_is_finite(case: tuple[int, int, int, st.DataObject], mode: Mode) -> None:
    size, end, order, data = case
    stream = data.draw(streams(size, end))
    model = fitted(stream, vocabulary=size, order=order, end=end, mode=mode)
    tokens = torch.tensor([data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=12))])
    logits = model(tokens).logits
    assert torch.isfinite(logits).all()
    torch.testing.assert_close(logits.double().exp().sum(-1), torch.ones(tokens.shape).double(), atol=1e-5, rtol=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from(MODES), st.sampled_from([-1, 0]))
def test_the_four_laws(seed: int, order: int, mode: Mode, end: int) -> None:
    rng = np.random.default_rng(seed)
    model = fitted(zipf(rng, 8, 7), vocabulary=7, order=order, mode=mode, end=end)
    tokens = torch.from_numpy(rng.integers(0, 7, (3, 9)))
    lengths = torch.from_numpy(rng.integers(0, 10, 3))
    whole = model(tokens)
    cut = int(rng.integers(0, 10))
    first = model(tokens[:, :cut])
    second = model(tokens[:, cut:], first.state)
    assert torch.equal(torch.cat([first.logits, second.logits], 1), whole.logits)
    assert torch.equal(second.state.tokens, whole.state.tokens)
    index = torch.tensor([2, 0, 0])
    picked = model(tokens[index, cut:], first.state.rows(index))
    assert torch.equal(picked.logits, second.logits[index])
    padded = model(tokens, lengths=lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length])
        assert torch.equal(padded.logits[row, :length], alone.logits[0])
        assert torch.equal(padded.state.tokens[row], alone.state.tokens[0])
    later = tokens.clone()
    later[:, 5:] = 1
    assert torch.equal(model(later).logits[:, :5], whole.logits[:, :5])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("end", [-1, 0])
def test_look_up_is_the_distribution_at_the_target(mode: Mode, end: int) -> None:
    rng = np.random.default_rng(1)
    model = fitted(zipf(rng, 30, 9), vocabulary=9, order=4, mode=mode, end=end)
    tokens, targets = torch.from_numpy(rng.integers(0, 9, (2, 4, 30)))
    lengths = torch.tensor([30, 1, 0, 17])
    targets[1, 1:] = -100
    found, state = model.log_prob(tokens, targets, lengths=lengths)
    output = model(tokens, lengths=lengths)
    expected = output.logits.gather(2, targets.clamp(min=0)[..., None])[..., 0]
    expected = expected.masked_fill(torch.arange(30) >= lengths[:, None], 0.0)
    assert torch.equal(found, expected)
    assert torch.equal(state.tokens, output.state.tokens)
    last = model(tokens, lengths=lengths, want=("last",)).logits
    assert torch.equal(last[3, 0], output.logits[3, 16])


def test_reading_the_end_token_starts_anew() -> None:
    model, _ = spoken(["a b", "b a c"], order=3)
    started = model(torch.empty(1, 0, dtype=torch.int64), want=("last",)).logits
    assert torch.equal(model(torch.tensor([[1, 2, 0]]), want=("last",)).logits, started)


@pytest.mark.parametrize("mode", MODES)
def test_a_new_model_gives_every_word_the_same(mode: Mode) -> None:
    model = NGram(NGramConfig(vocabulary=8, order=3, mode=mode, end=2))
    logits = model(torch.tensor([[1, 5, 2, 7]])).logits
    torch.testing.assert_close(logits, torch.full((1, 4, 8), -math.log(8)))
    assert list(model.parameters()) == []
    assert model.traits.context == 2


@pytest.mark.parametrize("assign", [False, True])
def test_an_empty_model_takes_tables_of_any_length(assign: bool) -> None:
    model, _ = spoken(["a b c", "b c a b"], order=3)
    copy = NGram(model.config)
    copy.load_state_dict(model.state_dict(), assign=assign)
    tokens = torch.tensor([[0, 1, 2, 3, 1]])
    assert torch.equal(copy(tokens).logits, model(tokens).logits)
    assert (copy.probability.data_ptr() == model.probability.data_ptr()) is assign
    assert torch.equal(copy.double().to(torch.bfloat16)(tokens).logits, model(tokens).logits)


def test_tables_of_other_settings_are_refused() -> None:
    model, _ = spoken(["a b c"], order=3)
    with pytest.raises(RuntimeError, match="order 2 over 4 words"):
        NGram(NGramConfig(vocabulary=4, order=2)).load_state_dict(model.state_dict())
    tables = dict(model.state_dict())
    tables["suffix"] = tables["suffix"][:-1]
    with pytest.raises(InputError, match="table suffix has"):
        NGram(model.config).adopt(tables)
    del tables["suffix"]
    with pytest.raises(RuntimeError, match=r"Missing key.*suffix"):
        NGram(model.config).load_state_dict(tables)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"order": 0}, "order = 0 must be 1 to 7"),
        ({"order": 8}, "order = 8 must"),
        ({"mode": "katz"}, "mode = 'katz' must be one of kneser-ney, backoff, add, mle"),
        ({"vocabulary": 0}, "vocabulary = 0 must"),
        ({"delta": 0.0}, "delta = 0.0 must"),
        ({"delta": math.nan}, "delta = nan must"),
        ({"alpha": 1.5}, "alpha = 1.5 must"),
        ({"end": 4}, "end = 4 must be a token from 0 to 3, or -1"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        NGramConfig(**{"vocabulary": 4, **wrong})


def test_tokens_outside_the_vocabulary_are_named() -> None:
    model = NGram(NGramConfig(vocabulary=4))
    with pytest.raises(InputError, match="token 4 is not in a vocabulary of 4"):
        model(torch.tensor([[1, 4]]))
    with pytest.raises(InputError, match="token -1"):
        model.log_prob(torch.tensor([[1]]), torch.tensor([[-1]]))


def test_scores_of_stupid_backoff_need_its_mode() -> None:
    with pytest.raises(InputError, match="only mode 'backoff'"):
        NGram(NGramConfig(vocabulary=4)).backoff_scores([1], [2])
