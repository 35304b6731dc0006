"""Models that are written down as tables, to search in."""

import math
from dataclasses import dataclass

import torch

from ensue.nn.protocol import Output
from ensue.nn.state import State


@dataclass(frozen=True)
class SoFar(State):
    """The sentence that a row belongs to, and all that it has read."""

    sentence: torch.Tensor  # (B,)
    tokens: torch.Tensor  # (B, T)


class Tree:
    """Answers written log-probabilities after written paths; what is left goes to the other words in equal parts.

    ``paths`` maps a path such as "he hit" to {next word: log P of the path with it}, as a tree is drawn.
    """

    def __init__(self, paths, fillers=60):
        words = {word for path, after in paths.items() for word in (*path.split(), *after)}
        self.words = ["<START>", "<END>", *sorted(words - {"<END>"}), *(f"word{n}" for n in range(fillers))]
        self.begin, self.end = 0, 1
        self.paths = paths

    def start(self, rows):
        return SoFar(torch.zeros(rows, dtype=torch.long), torch.zeros(rows, 0, dtype=torch.long))

    def name(self, token):
        return self.words[token]

    def said(self, tokens):
        return " ".join(map(self.name, tokens))

    def _total(self, path):
        """log P of a path: where it was written after the path before it."""
        before, _, word = path.rpartition(" ")
        return self.paths[before][word] if path else 0.0

    def _row(self, tokens):
        path = self.said(tokens[1:])
        after = {word: total - self._total(path) for word, total in self.paths.get(path, {}).items()}
        left = 1 - sum(map(math.exp, after.values()))
        assert left > 0
        row = torch.full((len(self.words),), math.log(left / (len(self.words) - len(after))))
        for word, log_prob in after.items():
            row[self.words.index(word)] = log_prob
        return row

    def __call__(self, tokens, state, *, want):
        tokens = torch.cat([state.tokens, tokens], dim=1)
        logits = torch.stack([self._row(row) for row in tokens.tolist()])
        return Output(logits[:, None] + 3.0, None, None, SoFar(state.sentence, tokens))  # logits need not sum to one


class Trigrams:
    """Random logits after the last two tokens, others in every sentence; and random attention to S source places."""

    def __init__(self, vocabulary, seed=0, sentences=1, scale=2.0, places=4):
        draw = torch.Generator().manual_seed(seed)
        self.logits = scale * torch.randn(sentences, vocabulary, vocabulary, vocabulary, generator=draw)
        self.attention = torch.randn(sentences, vocabulary, 2, places, generator=draw).softmax(-1)
        self.read = 0

    def start(self, sentences):
        numbers = torch.arange(sentences) if isinstance(sentences, int) else torch.tensor(sentences)
        return SoFar(numbers, torch.zeros(len(numbers), 1, dtype=torch.long))

    def __call__(self, tokens, state, *, want):
        self.read += len(tokens)
        past = torch.cat([state.tokens, tokens], dim=1)
        logits = self.logits[state.sentence, past[:, -2], past[:, -1]][:, None]
        seen = (self.attention[state.sentence, past[:, -1]][:, :, None],) if "attention" in want else None
        return Output(logits, None, seen, SoFar(state.sentence, past[:, -2:]))

    def log_probs(self, sentence, begin, tokens):
        """log P of each of the tokens after ``begin``, computed one by one."""
        past = [0, begin, *tokens]
        return [
            self.logits[sentence, past[at], past[at + 1]].double().log_softmax(-1)[past[at + 2]].item()
            for at in range(len(tokens))
        ]


PIE = Tree(
    {
        "": {"he": -0.7, "I": -0.9},
        "he": {"hit": -1.7, "struck": -2.9},
        "I": {"was": -1.6, "got": -1.8},
        "he hit": {"a": -2.5, "me": -2.8},
        "I was": {"hit": -2.9, "struck": -3.8},
        "he hit a": {"pie": -3.9, "tart": -4.0},
        "he hit me": {"with": -3.3, "on": -3.8},
        "he hit a pie": {"<END>": -4.9, "with": -5.3},
        "he hit me with": {"a": -3.7, "one": -4.5},
        "he hit me on": {"a": -4.4, "one": -4.9},
        "he hit me with a": {"pie": -4.3, "tart": -4.6},
        "he hit me with one": {"pie": -5.2, "tart": -5.5},
        "he hit me with a pie": {"<END>": -4.4},
        "he hit me with a tart": {"<END>": -4.8},
    }
)
"""«il m'a entarté»: a tree like the lecture's for a beam of 2; greedy search takes the wrong turn at "he hit a"."""
