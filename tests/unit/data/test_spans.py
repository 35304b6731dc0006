"""Span corruption: the text comes back from source and target; batches are a function of seed and step."""

import numpy as np
import pytest
import torch

from ensue.core.errors import InputError
from ensue.data.spans import SpanBatches, SpanOptions, SpanSizes, fitting_sizes, random_parts

SENTINELS = list(range(99, 0, -1))
END, FIRST, TEXT = 1000, 1001, np.arange(2000, 12_000)


def batches(seed=0, **changes):
    how = {"rows": 4, "length": 64, "options": SpanOptions(), "end": END, "first": FIRST, "seed": seed, **changes}
    return SpanBatches(TEXT, SENTINELS, **how)


def joined(source, target):
    """The text of a row."""
    spans, current = {}, []
    for token in target:
        if token in SENTINELS:
            current = spans[token] = []
        else:
            current.append(token)
    return [word for token in source for word in (spans.get(token, [token]))]


@pytest.mark.parametrize("options", [SpanOptions(), SpanOptions(share=0.5, mean=1.0), SpanOptions(share=0.3, mean=9.0)])
def test_source_and_target_together_are_the_text(options):
    made = batches(options=options)
    batch = made.batch(3)
    assert batch.source.shape[1] <= 64 and batch.targets.shape[1] <= 64
    for source, target in zip(batch.source.tolist(), batch.targets.tolist(), strict=True):
        assert source[-1] == target[-1] == END
        row = joined(source[:-1], target[:-1])
        assert row == list(range(row[0], row[0] + made.sizes.row))
        used = [token for token in source if token in SENTINELS]
        assert used == SENTINELS[: made.sizes.spans] == [token for token in target if token in SENTINELS]
        assert source[0] not in SENTINELS  # a row begins with what is kept
    assert torch.equal(batch.tokens[:, 1:], batch.targets[:, :-1]) and bool((batch.tokens[:, 0] == FIRST).all())


def test_a_batch_is_a_function_of_seed_and_step():
    def same(left, right):
        return torch.equal(left.source, right.source) and torch.equal(left.targets, right.targets)

    made, again = batches(), batches()
    far = made.batch(400)
    assert same(far, again.batch(400)) and same(made.batch(0), again.batch(0))
    assert not same(batches(seed=1).batch(0), again.batch(0))
    assert not same(made.batch(0), made.batch(made.steps_per_epoch))  # other spans in every epoch


def test_an_epoch_reads_every_row_once():
    made = batches()
    seen = [int(row[0]) for step in range(made.steps_per_epoch) for row in made.batch(step).source]
    assert len(seen) == len({*seen}) == len(TEXT) // made.sizes.row


def test_sizes_are_those_of_the_paper():
    sizes = fitting_sizes(512, SpanOptions())
    assert (sizes.source, sizes.target) == (512, 114)
    assert SpanSizes.of(100, SpanOptions()) == (100, 15, 5)


def test_parts_are_positive_and_sum_up():
    parts = random_parts(500, 9, 4, np.random.default_rng(0))
    assert (parts.sum(1) == 9).all() and (parts >= 1).all()
    assert len({*map(tuple, parts.tolist())}) > 40  # of 56 divisions


def test_a_short_text_is_one_row():
    made = SpanBatches(TEXT[:20], SENTINELS, rows=4, length=64, options=SpanOptions(), end=END, first=FIRST)
    assert len(made) == 1 and len(made.batch(5)) == 1


@pytest.mark.parametrize(
    ("changes", "message"), [({"length": 7}, "too short"), ({"length": 2000}, "sentinels")], ids=["short", "sentinels"]
)
def test_what_cannot_be_made_is_refused(changes, message):
    with pytest.raises(InputError, match=message):
        batches(**changes)
    with pytest.raises(InputError, match="no spans"):
        SpanBatches(TEXT[:5], SENTINELS, rows=1, length=64, options=SpanOptions(), end=END, first=FIRST)
