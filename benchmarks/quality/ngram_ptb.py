"""Kneser–Ney perplexity per word on the Penn Treebank's validation part, </s> counted and <s> not.

    ENSUE_DATA=… python -m benchmarks.quality.ngram_ptb

Reads $ENSUE_DATA/text/ptb/{train,valid}.txt.gz; ``<unk>`` is an ordinary word of the text, and one more word
that never occurs stands for KenLM's own ``<unk>``. KenLM gives 148.007 at order 5 and 157.8 at order 3.
The command is measured too: ``ensue fit ngram train.txt.gz --tokenizer word`` holds a tenth out for its own figure, and
must count it in the end. Appends to benchmarks/results/ngram_ptb.jsonl.
"""

from __future__ import annotations

import gzip
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.record import data_folder, record
from ensue.models.ngram import NGram, NGramConfig
from ensue.train.counting import count
from ensue.verbs.fit import fit

EXPECTED = {3: 157.8, 5: 148.0}


def stream(path: Path, ids: dict[str, int], *, grow: bool) -> list[int]:
    """The tokens of a file, the end mark first and after every line."""
    tokens = [0]
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            for word in line.split():
                tokens.append(ids.setdefault(word, len(ids)) if grow else ids.get(word, 1))
            tokens.append(0)
    return tokens


def by_command(folder: Path) -> dict[str, Any]:
    """The figures of a run as people make it."""
    with tempfile.TemporaryDirectory() as name:
        run = fit("ngram", str(folder / "train.txt.gz"), tokenizer="word", out=Path(name) / "run")
        score = run.score(str(folder / "valid.txt.gz"))
        figures = run.config["figures"]
        return {
            "fitted": "ensue fit ngram train.txt.gz --tokenizer word",
            "order": 5,
            "perplexity_per_word": round(score.perplexity["word"], 3),
            "expected": EXPECTED[5],
            "words": score.words,
            "train_tokens": figures["tokens"],
            "held_out": {"perplexity_per_word": figures["valid"]["perplexity"]["word"], **figures["held_out"]},
        }


def main() -> None:
    folder = data_folder() / "text" / "ptb"
    ids = {"</s>": 0, "<never seen>": 1}
    train = np.array(stream(folder / "train.txt.gz", ids, grow=True), np.int32)
    valid = torch.tensor([stream(folder / "valid.txt.gz", ids, grow=False)])
    missed = []
    for order, expected in EXPECTED.items():
        begun = time.perf_counter()
        counter = NGram(NGramConfig(vocabulary=len(ids), order=order, end=0)).counter()
        count(counter, train)
        model = counter.finish()
        fitted = time.perf_counter()
        logs, _ = model.log_prob(valid[:, :-1], valid[:, 1:])
        perplexity = math.exp(-logs.double().mean().item())
        figures = {
            "order": order,
            "perplexity_per_word": round(perplexity, 3),
            "expected": expected,
            "words": valid.shape[1] - 1,
            "ngrams": model.counts,
            "bytes": sum(table.nbytes for table in model.buffers()),
            "fit_seconds": round(fitted - begun, 3),
            "score_seconds": round(time.perf_counter() - fitted, 3),
        }
        record("ngram_ptb", figures)
        if abs(perplexity - expected) > 0.05:
            missed.append(order)
    figures = by_command(folder)
    record("ngram_ptb", figures)
    missed += [5] if abs(figures["perplexity_per_word"] - EXPECTED[5]) > 0.05 else []
    sys.exit(f"perplexity is off at order {missed}" if missed else 0)


if __name__ == "__main__":
    main()
