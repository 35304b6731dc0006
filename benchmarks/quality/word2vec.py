"""How good word vectors are, ours and gensim's at equal settings, over several seeds.

    ENSUE_DATA=… python -m benchmarks.quality.word2vec [--seeds 3] [--epochs 5] [--threads 2] [--mode skipgram|cbow]

Text: the reviews of IMDb's train part, as in benchmarks.speed.word2vec. Measures: Spearman's correlation with
WordSim-353 and SimLex-999, and the share of questions-words that is answered rightly, over questions whose words all
have vectors, the same for both. All values stand beside their means.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import numpy as np
import torch

from benchmarks.record import data_folder, record
from benchmarks.speed.word2vec import SETTINGS, reviews, stream
from ensue.data.word_benchmarks import read_analogies, read_similarities
from ensue.data.word_vectors import WordVectors
from ensue.measure.words import analogy_score, similarity_score
from ensue.models.word2vec import Word2Vec, Word2VecConfig
from ensue.models.word2vec_training import Word2VecTrainer
from ensue.tasks.words import RATES


def ours(sentences: list[list[str]], options: argparse.Namespace, seed: int) -> WordVectors:
    words, numbers, counts = stream(sentences)
    torch.manual_seed(seed)
    config = {name: SETTINGS[name] for name in ("embedding", "window", "negative")}
    model = Word2Vec(Word2VecConfig(vocabulary=len(words), mode=options.mode, **config))
    lr = options.lr or RATES[options.mode]
    trainer = Word2VecTrainer(
        model, numbers, counts, lr=lr, subsample=SETTINGS["subsample"], threads=options.threads, seed=seed
    )
    steps = options.epochs * trainer.steps_per_epoch
    for step in range(steps):
        trainer.update(step, step / steps, (step + 1) / steps)
    return WordVectors(words, model.embed.weight.detach().numpy())


def theirs(sentences: list[list[str]], options: argparse.Namespace, seed: int) -> WordVectors:
    from gensim.models import Word2Vec as Peer

    model = Peer(
        sentences,
        vector_size=SETTINGS["embedding"],
        window=SETTINGS["window"],
        negative=SETTINGS["negative"],
        sample=SETTINGS["subsample"],
        min_count=SETTINGS["min_count"],
        alpha=SETTINGS["lr"],
        sg=int(options.mode == "skipgram"),
        workers=options.threads,
        epochs=options.epochs,
        seed=seed + 1,
    )
    return WordVectors(model.wv.index_to_key, np.asarray(model.wv.vectors))


def measured(vectors: WordVectors) -> dict[str, float]:
    folder = data_folder() / "words"
    found = {
        name: similarity_score(vectors, read_similarities(folder / file)).spearman
        for name, file in (("wordsim353", "wordsim353.tsv"), ("simlex999", "simlex999.txt"))
    }
    return found | {"analogies": analogy_score(vectors, read_analogies(folder / "questions-words.txt.gz"))[-1].accuracy}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lines", type=int, default=25_000, help="how many reviews")
    parser.add_argument("--mode", choices=("skipgram", "cbow"), default="skipgram")
    parser.add_argument("--lr", type=float, default=0.0, help="ours; 0 means the mode's own")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sentences = reviews(options.lines)
    found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
    for seed in range(options.seeds):
        for name, program in (("ours", ours), ("theirs", theirs)):
            begun = time.perf_counter()
            vectors = program(sentences, options, seed)
            seconds = round(time.perf_counter() - begun, 1)
            found[name].append({**measured(vectors), "seconds": seconds})
            print(name, seed, found[name][-1], flush=True)
    figures: dict[str, Any] = {
        "corpus": f"labelled/imdb/train.tsv.gz, {options.lines:,} reviews, {sum(map(len, sentences)):,} words",
        "peer": f"gensim {__import__('gensim').__version__}",
        "mode": options.mode,
        **SETTINGS,
        "epochs": options.epochs,
        "threads": options.threads,
    }
    for name in found["ours"][0]:
        values = {who: [round(one[name], 4) for one in runs] for who, runs in found.items()}
        figures[name] = values | {"mean": {who: round(statistics.mean(many), 4) for who, many in values.items()}}
    record("word2vec_quality", figures, seed=list(range(options.seeds)))


if __name__ == "__main__":
    main()
