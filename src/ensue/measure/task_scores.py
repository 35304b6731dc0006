"""Scores of evaluation tasks, with standard errors.

    acc          share of questions whose right option has the highest log P(option | context)
    acc_norm     the same by log P per byte of the option
    acc_uncond   the same by log P(option | context) − log P(option)
    perplexity   exp(−mean log P) of the continuations
    exact_match  share of answers that are equal to a right one, without regard to case and punctuation at the ends

The standard error of a mean is that of a sample, s / √n; of other figures it is the spread of 1,000 bootstrap samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ensue.data.evaluation.task import MEASURES

RESAMPLES = 1000
EDGES = " \t\n.,;:!?\"'“”‘’«»()[]*"
"""What does not count at the ends of an answer."""


def plain_answer(text: str) -> str:
    """Return an answer as it is compared.

    >>> plain_answer(" Paris. "), plain_answer("the  Nile")
    ('paris', 'the nile')
    """
    return " ".join(text.casefold().replace("’", "'").strip(EDGES).split())


def choose(log_probs: Sequence[float], sizes: Sequence[int], unconditional: Sequence[float]) -> dict[str, int]:
    """Return the option that each measure of a choice prefers; ``sizes`` are the options' bytes.

    >>> choose([-4.0, -6.0], [4, 12], [-3.0, -7.0])
    {'acc': 0, 'acc_norm': 1, 'acc_uncond': 1}
    """
    values = np.array(log_probs)
    return {
        "acc": int(values.argmax()),
        "acc_norm": int((values / np.maximum(1, sizes)).argmax()),
        "acc_uncond": int((values - np.array(unconditional)).argmax()),
    }


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Return a mean and its standard error s / √n; None for a single value.

    >>> mean_and_error([1, 0, 1, 1])
    (0.75, 0.25)
    """
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return mean, None
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return mean, spread / math.sqrt(len(values))


def bootstrap_error(figure: Callable[[np.ndarray], float], rows: np.ndarray, seed: int = 0) -> float | None:
    """Return the standard error of a figure of rows (N, …), from samples drawn with replacement."""
    if len(rows) < 2:
        return None
    chance = np.random.default_rng(seed)
    drawn = [figure(rows[chance.integers(0, len(rows), len(rows))]) for _ in range(RESAMPLES)]
    return float(np.std(drawn, ddof=1))


def summarise(kind: str, records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of a task from the records of its examples: each measure with its standard error.

    >>> summarise("match", [{"right": {"exact_match": 1}}, {"right": {"exact_match": 0}}])["exact_match"]
    {'value': 0.5, 'error': 0.5}
    """
    figures: dict[str, Any] = {}
    if kind == "perplexity":
        figures = _text_figures(np.array([[one["log_prob"], one["bytes"], one["words"]] for one in records], float))
    else:
        for name in records[0]["right"]:
            value, error = mean_and_error([one["right"][name] for one in records])
            figures[name] = {"value": value, "error": error}
    if kind == "cloze":
        values = np.array([one["log_probs"][0] for one in records])
        perplexity = {"value": _exp(-values.mean()), "error": bootstrap_error(lambda some: _exp(-some.mean()), values)}
        figures["perplexity"] = perplexity
    groups = dict.fromkeys(one["group"] for one in records if one.get("group"))
    if len(groups) > 1:
        name = MEASURES[kind][0]
        figures["groups"] = {
            group: _group_figures([one["right"][name] for one in records if one["group"] == group]) for group in groups
        }
    return figures


def _group_figures(values: Sequence[float]) -> dict[str, Any]:
    value, error = mean_and_error(values)
    return {"examples": len(values), "value": value, "error": error}


def _text_figures(rows: np.ndarray) -> dict[str, Any]:
    """Bits per byte and perplexity per word of texts with log P, bytes and words (N, 3)."""

    def bits(some: np.ndarray) -> float:
        return float(-some[:, 0].sum() / some[:, 1].sum() / math.log(2))

    def words(some: np.ndarray) -> float:
        return _exp(-some[:, 0].sum() / some[:, 2].sum())

    named = {"bits_per_byte": bits, "word_perplexity": words}
    return {name: {"value": how(rows), "error": bootstrap_error(how, rows)} for name, how in named.items()}


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def chance_level(kind: str, options: Sequence[int]) -> float | None:
    """Return the accuracy of random guessing, given the number of options of each question; None without options.

    >>> chance_level("choice", [4, 4, 2])
    0.3333333333333333
    """
    return float(np.mean([1 / count for count in options])) if kind == "choice" else None
