"""How fast word vectors are learnt, against gensim, in turns in one run, on the same threads.

    ENSUE_DATA=… python -m benchmarks.speed.word2vec [--threads 2] [--rounds 5] [--lines 25000]

Text: the reviews of IMDb's train part, in small letters, words as runs of letters. Skip-gram, vectors of 100, window 5,
5 words of noise, subsampling at 1e-3, words that occur 5 times or more. A round is one time through the text; what is
timed is training alone, after the vocabulary is known, and words are those of the text before any is left out. gensim
is given the sentences as lists in memory, which is what it is fastest with.
"""

from __future__ import annotations

import argparse
import gzip
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.record import data_folder, record
from benchmarks.turns import Round, Work, ratio, take_turns
from ensue.data.tokenizers.vocabulary import frequent_words, words_and_lines

SETTINGS: dict[str, Any] = {
    "embedding": 100,
    "window": 5,
    "negative": 5,
    "subsample": 1e-3,
    "min_count": 5,
    "lr": 0.025,
}


def reviews(lines: int) -> list[list[str]]:
    """The words of each review."""
    with gzip.open(data_folder() / "labelled" / "imdb" / "train.tsv.gz", "rt", encoding="utf-8") as file:
        texts = [line.rstrip("\n").split("\t", 1)[1] for line in file]
    spread = np.linspace(0, len(texts) - 1, min(lines, len(texts))).astype(int)  # the file is sorted by label
    return [words_and_lines(texts[place], "letters", True) for place in spread]


def stream(sentences: list[list[str]]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The words, the text as their numbers, and their counts."""
    from collections import Counter

    counts = Counter(word for sentence in sentences for word in sentence)
    words = list(frequent_words(counts, SETTINGS["min_count"]))
    places = {word: place for place, word in enumerate(words)}
    numbers = [place for sentence in sentences for place in (*(places.get(word, -2) for word in sentence), -1)]
    found = np.array(numbers, np.int32)
    return words, found[found != -2], np.array([counts[word] for word in words], np.int64)


def ours(lines: int, threads: int) -> Work:
    import torch

    from ensue.models.word2vec import Word2Vec, Word2VecConfig
    from ensue.models.word2vec_training import Word2VecTrainer

    sentences = reviews(lines)
    total = sum(map(len, sentences))
    words, numbers, counts = stream(sentences)
    torch.manual_seed(0)
    config = {name: SETTINGS[name] for name in ("embedding", "window", "negative")}
    model = Word2Vec(Word2VecConfig(vocabulary=len(words), **config))
    trainer = Word2VecTrainer(
        model, numbers, counts, lr=SETTINGS["lr"], subsample=SETTINGS["subsample"], threads=threads
    )

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        for step in range(trainer.steps_per_epoch):
            trainer.update(step, step / trainer.steps_per_epoch, (step + 1) / trainer.steps_per_epoch)
        return Round(total, time.perf_counter() - begun)

    return work


def theirs(lines: int, threads: int) -> Work:
    from gensim.models import Word2Vec

    sentences = reviews(lines)
    total = sum(map(len, sentences))
    model = Word2Vec(
        vector_size=SETTINGS["embedding"],
        window=SETTINGS["window"],
        negative=SETTINGS["negative"],
        sample=SETTINGS["subsample"],
        min_count=SETTINGS["min_count"],
        alpha=SETTINGS["lr"],
        sg=1,
        workers=threads,
        seed=1,
    )
    model.build_vocab(sentences)

    def work(turn: int) -> Round:
        begun = time.perf_counter()
        model.train(sentences, total_examples=len(sentences), epochs=1)
        return Round(total, time.perf_counter() - begun)

    return work


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lines", type=int, default=25_000, help="how many reviews")
    parser.add_argument("--exact", action="store_true", help="ours on one thread, repeatable; theirs as --threads says")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(options.threads))
    own = 1 if options.exact else options.threads
    programs = {"ours": partial(ours, options.lines, own), "theirs": partial(theirs, options.lines, options.threads)}
    found = take_turns(programs, options.rounds)
    figures = {
        "work": "word2vec, skip-gram" + (", ours on one thread" if options.exact else ""),
        "size": f"{SETTINGS['embedding']} dimensions, {options.lines:,} reviews, {found['ours'][0].work:,} words",
        "ours": "ours",
        **({} if options.exact else {"mark": 2.5}),
        "peer": f"gensim {__import__('gensim').__version__}",
        "corpus": f"{Path('labelled/imdb/train.tsv.gz')}",
        "mode": "skipgram",
        **SETTINGS,
        "threads": {"ours": own, "theirs": options.threads},
        **ratio(found["ours"], found["theirs"], "words"),
    }
    record("word2vec_speed", figures)


if __name__ == "__main__":
    main()
