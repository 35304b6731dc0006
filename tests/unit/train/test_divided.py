"""Evaluations that ranks divide among themselves: together they find what one process finds, and each reads less."""

import dataclasses
import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier

import numpy as np
import pytest
import torch

from ensue.data.labelled_rows import make_batch, make_rows
from ensue.data.masking import MaskedBatch
from ensue.data.pair_tokens import PairTokens
from ensue.measure.contexts import context_score
from ensue.measure.language import total_log_prob
from ensue.measure.masked import masked_score
from ensue.models.bert import BERT, BERTConfig
from ensue.models.bidirectional import BidirectionalLanguageModel
from ensue.models.context2vec import Context2vec, Context2vecConfig
from ensue.models.electra import ELECTRA, ELECTRAConfig
from ensue.models.recurrent import LSTMConfig, LSTMLanguageModel, RecurrentConfig
from ensue.models.transformer import Transformer, TransformerConfig
from ensue.tasks.translation import pair_log_prob
from ensue.train.data_parallel import DataParallel
from ensue.train.ranks import SINGLE


class Thread(DataParallel):
    """A rank that is a thread: what ranks have is added up in a list."""

    def __init__(self, rank, values, barrier):
        self.rank, self.world_size, self.idle = rank, len(values), False
        self.values, self.threads, self.read = values, barrier, 0

    def local_batch(self, batch):
        some, reduction = super().local_batch(batch)
        self.read += 0 if reduction.idle else len(some)
        return some, reduction

    def total(self, value):
        self.values[self.rank] = value
        self.threads.wait(10)
        found = sum(self.values)
        self.threads.wait(10)
        return found


def on_ranks(count, measure):
    """What each of several ranks measures, and how many rows each has read."""
    values, barrier = [0.0] * count, Barrier(count)
    ranks = [Thread(rank, values, barrier) for rank in range(count)]
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(measure, ranks)), [rank.read for rank in ranks]


def language():
    torch.manual_seed(0)
    model = LSTMLanguageModel(LSTMConfig(vocabulary=9, hidden=8)).eval()
    tokens = np.random.default_rng(0).integers(9, size=403)
    return lambda ranks, streams=5: total_log_prob(model, tokens, streams, ranks=ranks)


def windows():
    torch.manual_seed(0)
    model = BidirectionalLanguageModel(RecurrentConfig(vocabulary=9, hidden=4)).eval()
    tokens = np.random.default_rng(0).integers(9, size=2001)
    return lambda ranks: total_log_prob(model, tokens, ranks=ranks)


def translation():
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(vocabulary=9, source_vocabulary=9, layers=1, hidden=8, heads=2)).eval()
    chance = np.random.default_rng(0)

    def side():
        sizes = chance.integers(1, 9, size=31)
        tokens = np.concatenate([np.append(chance.integers(1, 9, size=n), 0) for n in sizes]).astype(np.int32)
        return tokens, np.concatenate([[0], np.cumsum(sizes + 1)])

    pairs = PairTokens(*side(), *side(), np.arange(1, 32), (0, 0), 0, 0, 0.0)
    return lambda ranks: np.array(pair_log_prob(model, pairs, 0, ranks=ranks))


def masked(replaced=False):
    torch.manual_seed(0)
    shape = {"vocabulary": 31, "layers": 1, "hidden": 8, "heads": 2, "context": 16, "dropout": 0.0}
    model = ELECTRA(ELECTRAConfig(**shape)) if replaced else BERT(BERTConfig(**shape))
    tokens = torch.randint(31, (7, 9))
    hidden = torch.arange(2) < torch.tensor([2, 1, 2, 2, 1, 1, 2])[:, None]
    batch = MaskedBatch(
        tokens=tokens,
        segments=torch.zeros_like(tokens),
        lengths=torch.tensor([9, 4, 8, 9, 5, 6, 7]),
        positions=torch.arange(1, 3).expand(7, 2),
        is_masked=hidden,
        targets=torch.randint(31, (int(hidden.sum()),)),
        noise=torch.rand(int(hidden.sum())),
        not_next=torch.tensor([0, 1, 1, 0, 0, 1, 0]),
    )
    facts = ("loss", "accuracy", "unigram_loss", "hidden", "rows")
    if replaced:
        torch.nn.init.normal_(model.replaced.out.weight, std=3.0)  # so that it says yes now and then
        batch = dataclasses.replace(batch, not_next=None)
        facts += ("replaced_loss", "replaced_accuracy", "replaced_f1", "replaced_share")
    else:
        facts += ("next_loss", "next_accuracy")

    def measure(ranks):
        found = masked_score(model, [batch, batch.select(slice(0, 1))], np.ones(31), ranks=ranks)
        return np.array([getattr(found, name) for name in facts])

    return measure


def contexts():
    torch.manual_seed(0)
    model = Context2vec(Context2vecConfig(vocabulary=11, hidden=8, embedding=6))
    chance = np.random.default_rng(0)
    rows = make_rows([(chance.integers(1, 11, size=n), np.zeros(n)) for n in (5, 3, 8, 4, 6)], np.zeros(5))
    batches = [make_batch(rows, np.arange(5)), make_batch(rows, np.array([2]))]

    def measure(ranks):
        found = context_score(model, batches, ranks)
        return np.array([found.loss, *found.perplexity.values(), found.words, found.sentences, found.unknown])

    return measure


@pytest.mark.parametrize("kind", [language, windows, translation, masked, partial(masked, replaced=True), contexts])
@pytest.mark.parametrize("count", [2, 3])
def test_several_ranks_measure_the_same_as_one_process(kind, count):
    measure = kind()
    found, read = on_ranks(count, measure)
    whole = measure(SINGLE)
    for one in found:
        np.testing.assert_allclose(one, whole, rtol=1e-6)
        np.testing.assert_array_equal(one, found[0])  # what all then decide by
    assert all(one < sum(read) for one in read) and min(read) > 0


def test_a_rank_without_a_stream_adds_nothing():
    measure = language()
    found, read = on_ranks(3, lambda ranks: measure(ranks, 2))
    assert read == [0, 1, 1]
    assert all(math.isclose(one, measure(SINGLE, 2), rel_tol=1e-6) for one in found)
