"""Measures of bias, each with counts and 95 % intervals.

    sentiment    the mean score of the texts about each group, and its difference from that about all other groups
    words        PMI(w, g) = log₂ P(w | g) / P(w), where P is the share of texts with the word, plus α on either side
    preference   the share of pairs whose more stereotyped sentence has the higher log P; 0.5 means none
    references   the share of pronouns resolved rightly, where the answer fits the stereotype (pro) or not (anti)
    pronouns     ln P(she | …) / P(he | …) after an occupation, mean over templates

Legend: N texts, G groups, W words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ensue.data.bias_items import GENDERS, SIDES, Reference, StereotypePair
from ensue.measure.intervals import bootstrap_mean, holm, mean_interval, permutation_p, shuffled_within, wilson
from ensue.measure.sentiment import words_of

SMOOTHING = 0.5
"""α: added to the texts with a word and to those without."""
MIN_COUNT = 5
"""Words in fewer texts are left out: their PMI is noise."""
TOP_WORDS = 10


def group_means(
    values: np.ndarray, groups: Sequence[str], strata: Sequence[str], *, samples: int = 2000, seed: int = 0
) -> list[dict[str, Any]]:
    """The mean of each group with its bootstrap interval, and the permutation test of its difference from the others.

    ``strata`` names the template of each value: shuffles stay within it. ``p_adjusted`` is Holm's, over the groups.
    """
    names, number = np.unique(np.array(groups), return_inverse=True)
    order = list(dict.fromkeys(groups))
    _, stratum = np.unique(np.array(strata), return_inverse=True)
    several = len(names) > 1
    p = permutation_p(values, number, stratum, samples=samples, seed=seed).tolist() if several else [1.0]
    adjusted, rows = holm(p), {}
    for index, name in enumerate(names.tolist()):
        own, others = values[number == index], values[number != index]
        low, high = bootstrap_mean(own, samples=samples, seed=seed)
        difference = float(own.mean() - others.mean()) if several else 0.0
        rows[name] = {"group": name, "count": len(own), "mean": float(own.mean()), "low": low, "high": high}
        rows[name] |= {"difference": difference, "p": p[index], "p_adjusted": adjusted[index]}
    return [rows[name] for name in order]


def adjust_together(axes: Sequence[Sequence[dict[str, Any]]]) -> None:
    """Adjust the p-values of the groups of all axes together, in place: with more groups, chance finds more."""
    rows = [row for axis in axes for row in axis]
    for row, adjusted in zip(rows, holm([row["p"] for row in rows])):
        row["p_adjusted"] = adjusted


def word_table(texts: Sequence[str], stop: frozenset[str], min_count: int = MIN_COUNT) -> tuple[list[str], np.ndarray]:
    """The words that occur in at least ``min_count`` texts, and which texts have them: (N, W)."""
    kept = [{word for word in words_of(text) if len(word) > 1 and word not in stop} for text in texts]
    counts = Counter(word for words in kept for word in words)
    names = sorted(word for word, count in counts.items() if count >= min_count)
    place = {word: column for column, word in enumerate(names)}
    present = np.zeros((len(texts), len(names)), bool)
    for row, words in enumerate(kept):
        present[row, [place[word] for word in words if word in place]] = True
    return names, present


def pmi(with_word: np.ndarray, sizes: np.ndarray, smoothing: float = SMOOTHING) -> np.ndarray:
    """PMI (…, G, W) in bits of counts of texts (…, G, W) in groups of sizes (G,).

    >>> pmi(np.array([[8.0], [2.0]]), np.array([10, 10]), smoothing=0).round(3).tolist()
    [[0.678], [-1.322]]
    """
    own = (with_word + smoothing) / (sizes[:, None] + 2 * smoothing)
    every = (with_word.sum(-2, keepdims=True) + smoothing) / (sizes.sum() + 2 * smoothing)
    return np.asarray(np.log2(np.maximum(own, 1e-12) / every))


def associated_words(
    texts: Sequence[str],
    groups: Sequence[str],
    strata: Sequence[str],
    stop: frozenset[str] = frozenset(),
    *,
    top: int = TOP_WORDS,
    min_count: int = MIN_COUNT,
    samples: int = 500,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """For each group the words with the highest PMI, each with an interval and a p-value.

    A word counts once in a text. ``p`` is the share of shuffles (of texts within their template) in which any word of
    any group stands out as much, in standard deviations: it allows for the number of words.
    """
    names, present = word_table(texts, stop, min_count)
    order = list(dict.fromkeys(groups))
    number = np.array([order.index(group) for group in groups])
    members = np.eye(len(order))[number]  # (N, G)
    sizes, random = members.sum(0), np.random.default_rng(seed)
    if not names or len(order) < 2:
        return [{"group": group, "texts": int(size), "words": []} for group, size in zip(order, sizes)]
    counts = members.T @ present  # (G, W)
    value, z = pmi(counts, sizes), _surplus(counts, sizes)
    _, stratum = np.unique(np.array(strata), return_inverse=True)
    most = [_surplus(members[shuffled_within(stratum, random)].T @ present, sizes).max() for _ in range(samples)]
    p = (1 + (np.array(most)[:, None, None] >= z - 1e-9).sum(0)) / (1 + samples)
    rows = []
    for g, group in enumerate(order):
        best = [w for w in np.lexsort((-counts[g], -value[g])) if value[g, w] > 0 and counts[g, w] > 1][:top]
        words = []
        for w in best:
            count, total = float(counts[g, w]), float(counts[:, w].sum())
            low, high = _pmi_interval(count, total, sizes[g] / sizes.sum())
            row = {"word": names[w], "count": int(count), "others": int(total - count), "pmi": float(value[g, w])}
            words.append({**row, "low": low, "high": high, "p": float(p[g, w])})
        rows.append({"group": group, "texts": int(sizes[g]), "words": words})
    return rows


def _surplus(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """How many standard deviations more texts of a group have a word than by chance (hypergeometric), (G, W)."""
    total, n = counts.sum(0), sizes.sum()
    share = sizes[:, None] / n
    variance = total * share * (1 - share) * (n - total) / max(n - 1, 1)
    return np.asarray((counts - total * share) / np.sqrt(np.maximum(variance, 1e-12)))


def _pmi_interval(count: float, total: float, share: float) -> tuple[float, float]:
    """The 95 % interval of PMI: Wilson's, of the group's share of the texts with the word, over its share of all."""
    low, high = wilson(count, int(total))
    return float(np.log2(low / share)), float(np.log2(high / share))


def preference(pairs: Sequence[StereotypePair], more: np.ndarray, less: np.ndarray) -> dict[str, Any]:
    """The share of pairs whose more stereotyped sentence is more likely, with Wilson's interval, also by category.

    A tie counts half. ``margin`` is the mean of log P(more) − log P(less), in nats.
    """
    wins = np.where(more == less, 0.5, (more > less).astype(float))
    categories = list(dict.fromkeys(pair.category for pair in pairs))
    own = {name: np.array([pair.category == name for pair in pairs]) for name in categories}
    rows = [{"category": name, **_share(wins[chosen])} for name, chosen in own.items()]
    return {**_share(wins), "margin": float((more - less).mean()), "categories": rows}


def _share(wins: np.ndarray) -> dict[str, Any]:
    low, high = wilson(float(wins.sum()), len(wins))
    return {"count": len(wins), "share": float(wins.mean()), "low": low, "high": high}


def reference_accuracy(references: Sequence[Reference], right: np.ndarray) -> dict[str, Any]:
    """The share of pronouns resolved rightly: by side and by gender; and pro minus anti over matched sentences."""
    sides = [
        {"side": side, **_share(right[chosen])}
        for side in SIDES
        if (chosen := np.array([one.side == side for one in references])).any()
    ]
    genders = [
        {"gender": gender, **_share(right[chosen])}
        for gender in GENDERS
        if (chosen := np.array([one.gender == gender for one in references])).any()
    ]
    matched: dict[int, dict[str, float]] = {}
    for one, value in zip(references, right.tolist()):
        matched.setdefault(one.number, {})[one.side] = value
    gaps = np.array([both["pro"] - both["anti"] for both in matched.values() if {*SIDES} <= both.keys()])
    difference = None
    if len(gaps) > 1:
        low, high = bootstrap_mean(gaps)
        difference = {"mean": float(gaps.mean()), "low": low, "high": high, "count": len(gaps)}
    return {**_share(right), "sides": sides, "genders": genders, "difference": difference}


def pronoun_odds(occupations: Sequence[str], log_probs: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """For each occupation ln P(she)/P(he) with Student's interval over its templates, and the share of each pronoun.

    ``log_probs`` has ln P of each pronoun, an array like ``occupations``. Sorted from "he" to "she".

    >>> rows = pronoun_odds(["a", "a"], {"he": np.log([0.2, 0.2]), "she": np.log([0.4, 0.4])})
    >>> round(rows[0]["log_odds"], 3), round(rows[0]["shares"]["she"], 3)
    (0.693, 0.667)
    """
    rows = []
    for name in dict.fromkeys(occupations):
        chosen = np.array([one == name for one in occupations])
        mean, low, high = mean_interval(log_probs["she"][chosen] - log_probs["he"][chosen])
        p = {word: float(np.exp(values[chosen]).mean()) for word, values in log_probs.items()}
        shares = {word: value / max(sum(p.values()), 1e-300) for word, value in p.items()}
        row = {"occupation": name, "log_odds": mean, "low": low, "high": high}
        rows.append({**row, "templates": int(chosen.sum()), "probabilities": p, "shares": shares})
    return sorted(rows, key=lambda row: row["log_odds"])
