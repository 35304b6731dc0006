"""KenLM loads what is written and gives every token the same score (1e-4 in log10)."""

from __future__ import annotations

import math
from pathlib import Path

import kenlm
import numpy as np
import pytest
import torch

from ensue.exchange.arpa import read_arpa, write_arpa
from ensue.models.ngram import NGram, NGramConfig
from ensue.train.counting import count

VOCABULARY = 60
NAMES = ["</s>", "<unk>", "\\/", *(f"w{number}" for number in range(VOCABULARY - 3))]


def sentences(seed: int, number: int) -> list[list[int]]:
    """Zipf-like sentences of dependent words; word 1 (``<unk>``) and the last words are rare."""
    rng = np.random.default_rng(seed)
    result = []
    for _ in range(number):
        words = [int(rng.zipf(1.3) % (VOCABULARY - 1)) + 1]
        for _ in range(int(rng.integers(0, 14))):
            step = int(rng.zipf(1.6))
            words.append((words[-1] * 7 + step) % (VOCABULARY - 1) + 1)
        result.append(words)
    return [*result, []]


def trained(order: int, mode: str) -> NGram:
    stream = [0]
    for words in sentences(0, 400):
        stream += [*words, 0]
    config = NGramConfig(vocabulary=VOCABULARY, order=order, end=0, mode=mode)  # type: ignore[arg-type]
    counter = NGram(config).counter()
    count(counter, np.array(stream))
    return counter.finish()


@pytest.mark.parametrize(("order", "mode"), [(2, "kneser-ney"), (3, "backoff"), (5, "kneser-ney")])
def test_kenlm_scores_each_token_alike(tmp_path: Path, order: int, mode: str) -> None:
    model = trained(order, mode)
    path = tmp_path / "model.arpa"
    write_arpa(model, NAMES, path)
    theirs = kenlm.Model(str(path))
    back, names = read_arpa(path)
    assert names == NAMES and theirs.order == order
    for words in sentences(1, 60):
        scores = [log for log, _, _ in theirs.full_scores(" ".join(NAMES[word] for word in words))]
        tokens, targets = torch.tensor([[0, *words]]), torch.tensor([[*words, 0]])
        for ours in (model, back):
            found, _ = ours.log_prob(tokens, targets)
            assert (found[0] / math.log(10)).tolist() == pytest.approx(scores, abs=1e-4)


def test_tokens_of_white_space_survive_kenlm(tmp_path: Path) -> None:
    names = ["</s>", "a", " ", "\n"]
    counter = NGram(NGramConfig(vocabulary=4, order=2, end=0)).counter()
    count(counter, np.array([0, 1, 2, 1, 3, 1, 2, 0]))
    model = counter.finish()
    write_arpa(model, names, tmp_path / "characters.arpa")
    theirs = kenlm.Model(str(tmp_path / "characters.arpa"))
    scores = [log for log, _, _ in theirs.full_scores("a \\u0020 a \\u000a")]
    found, _ = model.log_prob(torch.tensor([[0, 1, 2, 1, 3]]), torch.tensor([[1, 2, 1, 3, 0]]))
    assert (found[0] / math.log(10)).tolist() == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("end", [-1, 0])
def test_kenlm_loads_models_with_empty_orders_or_no_end_token(tmp_path: Path, end: int) -> None:
    counter = NGram(NGramConfig(vocabulary=4, order=3, end=end)).counter()
    count(counter, np.array([0, 1, 0]))
    write_arpa(counter.finish(), ["x", "a", "b", "<unk>"], tmp_path / "m.arpa")
    assert kenlm.Model(str(tmp_path / "m.arpa")).order == 3
