"""Rows that come and go get what they would have got alone."""

from __future__ import annotations

import pytest
import torch

from ensue.core.errors import InvalidDistribution
from ensue.models.gpt import GPTConfig, GPTLanguageModel
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel
from ensue.search.continuous_batching import ContinuousBatch, DrawnToken, Row
from ensue.search.sampling import Sampling, sample

V = 23


def models() -> dict[str, torch.nn.Module]:
    torch.manual_seed(0)
    return {
        "gpt": GPTLanguageModel(GPTConfig(vocabulary=V, layers=2, heads=2, hidden=16, context=64)).double(),
        "gpt past its window": GPTLanguageModel(
            GPTConfig(vocabulary=V, layers=1, heads=2, hidden=16, context=8)
        ).double(),
        "lstm": LSTMLanguageModel(LSTMConfig(vocabulary=V, hidden=12, layers=2)).double(),
        "lstm that attends": LSTMLanguageModel(
            LSTMConfig(vocabulary=V, hidden=12, layers=2, attend=2, span=5)
        ).double(),
    }


def rows() -> list[Row]:
    """Prompts of several lengths, some greedy, some drawn."""
    torch.manual_seed(1)
    return [
        Row(torch.randint(V, (size,)), Sampling(tokens=tokens, temperature=t, top_k=k, seed=seed), ends=frozenset([0]))
        for size, tokens, t, k, seed in (
            (3, 12, 0.0, 0, 0),
            (9, 5, 1.0, 0, 1),
            (1, 20, 0.8, 5, 2),
            (6, 9, 0.0, 0, 3),
            (3, 7, 0.9, 0, 4),  # as long as the first, with which it may be read
        )
    ]


def alone(model: torch.nn.Module, row: Row) -> list[int]:
    return sample(model, row.prompt, row.how, row.ends)[0].tokens


def run(together: ContinuousBatch, got: dict[int, list[int]]) -> None:
    for row, one in together.step():
        assert isinstance(one, DrawnToken)
        got.setdefault(id(row), []).append(one.token)


@pytest.mark.parametrize("name", models())
def test_a_row_generates_the_same_whatever_rows_join_and_leave(name: str) -> None:
    model, own, got = models()[name], rows(), {}
    together = ContinuousBatch(model)
    together.join(own[:1])
    run(together, got)
    together.join(own[1:3])
    run(together, got)
    run(together, got)
    together.join(own[3:])
    while len(together):
        run(together, got)
    assert [got[id(row)] for row in own] == [alone(model, row) for row in rows()]


def test_a_row_that_leaves_does_not_change_the_others() -> None:
    model, own, got = models()["gpt"], rows(), {}
    together = ContinuousBatch(model)
    together.join(own)
    run(together, got)
    together.leave([own[2], Row(torch.tensor([1]), Sampling())])
    together.leave([own[2]])
    while len(together):
        run(together, got)
    for place in (0, 1, 3, 4):
        assert got[id(own[place])] == alone(model, rows()[place])
    assert len(got[id(own[2])]) == 1


@pytest.mark.parametrize("name", models())
def test_a_row_that_pauses_continues_where_it_was(name: str) -> None:
    model, own, got = models()[name], rows(), {}
    together = ContinuousBatch(model)
    together.join(own)
    run(together, got)
    paused = together.pause([own[0], own[3], Row(torch.tensor([1]), Sampling())])
    assert [one.row for one in paused] == [own[0], own[3]] and len(together) == 3
    run(together, got)
    run(together, got)
    together.resume(paused[:1])
    while len(together):
        run(together, got)
    together.resume(paused[1:])  # into an empty batch
    while len(together):
        run(together, got)
    assert [got[id(row)] for row in own] == [alone(model, row) for row in rows()]


def test_rows_can_join_after_all_have_left() -> None:
    model = models()["lstm"]
    together = ContinuousBatch(model)
    together.join([])
    first, second = rows()[0], rows()[3]
    together.join([first])
    together.leave([first])
    assert not len(together) and together.step() == []
    together.join([second])
    got: dict[int, list[int]] = {}
    while len(together):
        run(together, got)
    assert got[id(second)] == alone(model, rows()[3])


def test_a_token_comes_with_its_log_probability_and_the_most_probable_ones() -> None:
    model = models()["lstm"]
    together = ContinuousBatch(model)
    row = Row(torch.tensor([3, 4]), Sampling(tokens=1, temperature=0.0), best=3)
    together.join([row])
    ((_, drawn),) = together.step()
    assert isinstance(drawn, DrawnToken) and drawn.last and not drawn.ended
    assert drawn.best[0] == (drawn.token, drawn.log_prob) and len(drawn.best) == 3
    assert [p for _, p in drawn.best] == sorted((p for _, p in drawn.best), reverse=True)


def test_a_row_whose_distribution_is_not_finite_leaves_alone() -> None:
    model, own, got = models()["lstm"], rows(), {}
    together = ContinuousBatch(model)
    together.join(own[:2])
    together._logits[1] = float("nan")
    first, second = together.step()
    assert isinstance(first[1], DrawnToken) and isinstance(second[1], InvalidDistribution) and together.rows == own[:1]
    got[id(own[0])] = [first[1].token]
    while len(together):
        run(together, got)
    assert got[id(own[0])] == alone(model, rows()[0])


def test_a_tiny_temperature_is_greedy() -> None:
    model = models()["lstm"]
    cold, coldest = (sample(model, torch.tensor([3, 4]), Sampling(tokens=9, temperature=t))[0] for t in (0.0, 5e-324))
    assert cold.tokens == coldest.tokens


@pytest.mark.parametrize("name", models())
def test_equal_prompts_are_read_once_and_each_row_gets_what_it_would_alone(name: str) -> None:
    model, got, read = models()[name], {}, []
    own = [
        Row(torch.tensor(prompt), Sampling(tokens=8, temperature=1.0, seed=seed), ends=frozenset([0]))
        for seed, prompt in enumerate([[5, 3, 2], [7, 1, 4], [5, 3, 2], [5, 3], [5, 3, 2], [7, 1, 4]])
    ]
    handle = model.register_forward_pre_hook(lambda _, inputs: read.append(tuple(inputs[0].shape)))
    together = ContinuousBatch(model)
    together.join(own)
    assert sorted(read) == [(1, 2), (2, 3)]
    handle.remove()
    while len(together):
        run(together, got)
    fresh = [Row(row.prompt, row.how, row.ends) for row in own]
    assert [got[id(row)] for row in own] == [alone(model, row) for row in fresh]


def test_the_cache_does_not_grow_while_rows_come_and_go() -> None:
    """A batch that is never empty keeps room for its own rows, not for all steps since it began."""
    model, torch_rows = models()["gpt"], torch.Generator().manual_seed(3)
    together = ContinuousBatch(model, store=False)
    widths = []
    for step in range(120):
        if step % 3 == 0:  # a row lives for nine steps, so that three are there
            prompt = torch.randint(1, V, (4,), generator=torch_rows)
            together.join([Row(prompt, Sampling(tokens=9, temperature=0), ends=frozenset())])
        together.step()
        caches = [tensor for _, tensor in together._state.tensors() if tensor.dim() == 4]
        widths.append(max(cache.shape[2] for cache in caches))
    assert len(together) and caches and max(widths) <= 2 * 32  # 13 tokens a row; the smallest buffer has 32
