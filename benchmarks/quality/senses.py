"""The two senses of bank and play: how often a context's nearest neighbour has the same sense, by run and by layer.

python -m benchmarks.quality.senses runs/elmo runs/word2vec runs/context2vec

The contexts are the built-in ones; each is looked up among all others (leave one out). A table of word vectors has what
chance has, as its vector of a word is the same everywhere.
"""

from __future__ import annotations

import argparse
from typing import Any

import ensue
from benchmarks.record import record
from ensue.data.senses import SENSES
from ensue.look.views import show


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+")
    typed = parser.parse_args()
    for run in typed.runs:
        for word in SENSES:
            record("senses", {"system": ensue.load(run).system, "word": word, **by_layer(run, word)})


def by_layer(run: str, word: str) -> dict[str, Any]:
    """Accuracies of every layer that a run has, the first one first."""
    loaded = [ensue.load(run)]
    whole = show("senses", loaded, word=word).numbers
    layers = [show("senses", loaded, word=word, layer=layer).numbers for layer in range(1, whole["layers"] + 1)]
    found = [round(layer["accuracy"], 4) for layer in layers]
    facts = {name: whole[name] for name in ("chance", "identical")}
    return {"accuracy": round(whole["accuracy"], 4), "by_layer": found, **facts, "contexts": len(whole["contexts"])}


if __name__ == "__main__":
    main()
