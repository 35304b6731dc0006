"""Evaluate translations: BLEU, chrF, GLEU, BLEU by length, and a paired bootstrap test.

    p_n  = Σ_sentences Σ_{n-grams of the output} min(count in the output, most in one reference)
           / Σ_sentences Σ_{n-grams of the output} count in the output
    BP   = min(1, e^{1 − r/c})       c: words of the outputs, r: words of the references nearest to them in length
    BLEU = 100 · BP · exp(Σ_{n=1..4} ¼ log p_n)          (Papineni et al., 2002)

Published figures should be sacreBLEU's (Post, 2018), with its signature: it tokenises in one fixed way, so that a
model's tokenizer cannot change the score. Every BLEU here is sacreBLEU's, or is computed from the same counts per
sentence, so that subsets and resamples of a corpus cost only additions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from ensue.core.errors import InputError

ORDER = 4
LENGTH_EDGES = (8, 10, 12, 15, 20)
"""Bins of source length for captions such as Multi30k's: up to 8 words, 9–10, 11–12, 13–15, 16–20, above."""

References = Sequence[Sequence[str]] | Sequence[str]
"""One or several references per sentence."""


@dataclass(frozen=True, slots=True)
class TranslationScore:
    """Figures of translations."""

    bleu: float
    """sacreBLEU, 0 to 100: cased, with the 13a tokenizer."""
    bleu_signature: str
    bleu_lower_tokenised: float
    """The same on lower-cased text, close to what older papers report, but with the 13a tokenizer. Compare it only with
    figures of the same signature."""
    bleu_lower_tokenised_signature: str
    chrf: float
    """chrF2, 0 to 100: F-score of character 1- to 6-grams, recall counted twice (Popović, 2015)."""
    chrf_signature: str
    sentences: int
    exact: float
    """Share of outputs that equal one of their references."""


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """Result of a paired bootstrap test of two systems."""

    bleu_a: float
    bleu_b: float
    delta: float
    """BLEU of b minus BLEU of a, on the whole test set."""
    p_value: float
    """Share of resampled test sets on which the better system is not better (one-sided)."""
    interval: tuple[float, float]
    """95 % confidence interval of the difference."""
    samples: int


def translation_score(outputs: Sequence[str], references: References) -> TranslationScore:
    """All figures of translations against one or more references per sentence.

    >>> score = translation_score(["the cat sat on the mat"], [["the cat sat on the mat", "a cat sat there"]])
    >>> round(score.bleu, 6), score.exact
    (100.0, 1.0)
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    choices = _choices(outputs, references)
    streams = _streams(choices)
    cased, lower, characters = BLEU(), BLEU(lowercase=True, force=True), CHRF()  # force: one warning is enough
    scores = [metric.corpus_score(outputs, streams).score for metric in (cased, lower, characters)]
    return TranslationScore(
        bleu=scores[0],
        bleu_signature=str(cased.get_signature()),
        bleu_lower_tokenised=scores[1],
        bleu_lower_tokenised_signature=str(lower.get_signature()),
        chrf=scores[2],
        chrf_signature=str(characters.get_signature()),
        sentences=len(outputs),
        exact=sum(output in some for output, some in zip(outputs, choices)) / len(outputs),
    )


def bleu_by_hand(outputs: Sequence[Sequence[Hashable]], references: Sequence[Sequence[Sequence[Hashable]]]) -> float:
    """BLEU of a tokenised corpus, from the definition: BLEU = BP · exp(Σ ¼ log p_n), BP = min(1, e^{1 − r/c}).

    No smoothing: without a common 4-gram it is 0.

    >>> bleu_by_hand(["the cat sat on a mat".split()], [["the cat sat on a mat".split()]])
    100.0
    """
    _same_number(outputs, references)
    counts = [sum(column) for column in zip(*map(sentence_counts, outputs, references))]
    c, r, matches, totals = counts[0], counts[1], counts[2 : 2 + ORDER], counts[2 + ORDER :]
    if 0 in matches:
        return 0.0
    precisions = [match / total for match, total in zip(matches, totals)]
    brevity = min(1.0, math.exp(1 - r / c))
    return 100 * brevity * math.exp(sum(math.log(p) / ORDER for p in precisions))


def sentence_counts(output: Sequence[Hashable], references: Sequence[Sequence[Hashable]]) -> list[int]:
    """The counts that BLEU needs of a sentence: words, words of the nearest reference, matches and n-grams for n = 1–4.

    Matches of an n-gram are clipped to its largest count in one reference.
    """
    nearest = min((len(reference) for reference in references), key=lambda size: (abs(size - len(output)), size))
    matches, totals = [], []
    for n in range(1, ORDER + 1):
        grams, most = ngrams(output, n), Counter[tuple[Hashable, ...]]()
        for reference in references:
            most |= ngrams(reference, n)
        matches.append((grams & most).total())
        totals.append(grams.total())
    return [len(output), nearest, *matches, *totals]


def ngrams(tokens: Sequence[Hashable], n: int) -> Counter[tuple[Hashable, ...]]:
    """The counts of the n-grams of a sentence.

    >>> ngrams("abab", 2)
    Counter({('a', 'b'): 2, ('b', 'a'): 1})
    """
    return Counter(zip(*(tokens[i:] for i in range(n))))


def gleu(output: Any, reference: Any) -> float:
    """Sentence GLEU, 0 to 1: a reward for single sentences, where BLEU is too coarse (Wu et al., 2016, section 5).

        GLEU = min(precision, recall) = matches / max(n-grams of the output, n-grams of the reference)

    over all 1- to 4-grams together. It is symmetric, and 0 if nothing matches or both are empty. Both are sequences of
    token ids (lists, tuples, arrays or tensors) or of words.

    >>> gleu([1, 2, 3], [1, 2, 3]), gleu([1, 2], [1, 3])
    (1.0, 0.3333333333333333)
    """
    ours, theirs = _all_ngrams(output), _all_ngrams(reference)
    if len(ours) > len(theirs):
        ours, theirs = theirs, ours
    most = max(sum(ours.values()), sum(theirs.values()))
    matches = sum(min(count, theirs[gram]) for gram, count in ours.items() if gram in theirs)
    return matches / most if most else 0.0


def _all_ngrams(tokens: Any) -> dict[tuple[Hashable, ...], int]:
    tokens = tokens.tolist() if hasattr(tokens, "tolist") else tokens  # a tensor's elements do not compare by value
    counts: Counter[tuple[Hashable, ...]] = Counter()
    for n in range(1, ORDER + 1):
        counts.update(zip(*(tokens[i:] for i in range(n))))
    return counts


def length_edges(sources: Sequence[str], bins: int = 6) -> tuple[int, ...]:
    """Edges for ``bleu_by_length`` with about equally many sentences per bin; fewer bins if lengths repeat.

    >>> length_edges(["a", "a b", "a b c", "a b c d"], bins=2)
    (2,)
    """
    if bins < 1 or not sources:
        raise InputError(f"{bins} bins of {len(sources)} sentences cannot be made", hint="give at least one of each")
    lengths = [len(source.split()) for source in sources]
    shares = np.arange(1, bins) / bins
    edges = {int(edge) for edge in np.quantile(lengths, shares, method="inverted_cdf")}
    return tuple(sorted(edges - {max(lengths)}))


def bleu_by_length(
    sources: Sequence[str], outputs: Sequence[str], references: References, edges: Sequence[int] = LENGTH_EDGES
) -> list[dict[str, Any]]:
    """BLEU by source length: a bin ends at each edge, in words, and the last is open.

    Each bin has ``label``, ``low`` and ``high`` (None above the last edge), ``sentences``, ``words`` (the mean) and
    ``bleu``, which is sacreBLEU's of the bin's sentences. Bins without sentences are left out. For bins of equal size
    give ``edges=length_edges(sources, bins=6)``.
    """
    if not all(before < after for before, after in pairwise((0, *edges))):
        raise InputError(f"edges {tuple(edges)} do not rise from 1 on", hint="give them in order, such as (8, 12, 20)")
    if len(sources) != len(outputs):
        raise InputError(f"{len(sources)} sources have {len(outputs)} outputs", hint="give one output for each source")
    counts = _corpus_counts(outputs, references)
    lengths = np.array([len(source.split()) for source in sources])
    rows = []
    for low, high in zip((0, *(edge + 1 for edge in edges)), (*edges, None)):
        chosen = (lengths >= low) & (lengths <= (math.inf if high is None else high))
        if chosen.any():
            sizes = {"sentences": int(chosen.sum()), "words": float(lengths[chosen].mean())}
            bleu = float(_bleu(counts[chosen].sum(0)))
            rows.append({"label": _bin_label(low, high), "low": low, "high": high, **sizes, "bleu": bleu})
    return rows


def _bin_label(low: int, high: int | None) -> str:
    if high is None:
        return f"{low} or more" if low else "all"
    return f"up to {high}" if low == 0 else str(low) if low == high else f"{low}–{high}"


def paired_bootstrap(
    outputs_a: Sequence[str], outputs_b: Sequence[str], references: References, samples: int = 1000, seed: int = 0
) -> Bootstrap:
    """Paired bootstrap test of the difference in BLEU (Koehn, 2004).

    Resamples the test set with replacement and scores both systems on each sample. The p-value is the share of samples
    on which the better system is not better, with one sample added: p ≥ 1/(samples + 1). BLEU needs only sums over
    sentences, so a sample costs additions.
    """
    if samples < 1:
        raise InputError(f"samples {samples} must be 1 or more")
    counts = np.stack([_corpus_counts(outputs, references) for outputs in (outputs_a, outputs_b)], axis=1)
    bleu_a, bleu_b = (float(score) for score in _bleu(counts.sum(0)))
    delta = bleu_b - bleu_a
    draws, random = np.empty((samples, *counts.shape[1:]), dtype=np.int64), np.random.default_rng(seed)
    for sample in range(samples):
        draws[sample] = counts[random.integers(len(counts), size=len(counts))].sum(0)
    scores = _bleu(draws)
    differences = scores[:, 1] - scores[:, 0]
    against = int((differences * np.sign(delta) <= 0).sum())
    low, high = np.quantile(differences, [0.025, 0.975])
    return Bootstrap(bleu_a, bleu_b, delta, (against + 1) / (samples + 1), (float(low), float(high)), samples)


def _bleu(counts: np.ndarray) -> np.ndarray:
    """BLEU of summed counts (…, 10), with sacreBLEU's exponential smoothing: the k-th order without a match counts as
    1/2^k of one."""
    c, r = counts[..., 0], counts[..., 1]
    matches, totals = counts[..., 2 : 2 + ORDER], counts[..., 2 + ORDER :]
    halved = 0.5 ** np.cumsum(matches == 0, axis=-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(matches > 0, matches, halved) / totals
        scores = 100 * np.exp(np.minimum(0.0, 1 - r / c) + np.log(precisions).mean(-1))
    return np.where((matches.sum(-1) > 0) & (totals[..., -1] > 0), scores, 0.0)


def _corpus_counts(outputs: Sequence[str], references: References) -> np.ndarray:
    """``sentence_counts`` of each sentence tokenised by sacreBLEU's 13a, cased: (N, 10)."""
    from sacrebleu.metrics.bleu import BLEU

    choices, tokenizer = _choices(outputs, references), BLEU().tokenizer
    rows = []
    for output, some in zip(outputs, choices):
        words = tokenizer(output.rstrip()).split()
        rows.append(sentence_counts(words, [tokenizer(reference.rstrip()).split() for reference in some]))
    return np.array(rows, dtype=np.int64)


def _choices(outputs: Sequence[str], references: References) -> list[list[str]]:
    """The references of each output as a list."""
    _same_number(outputs, references)
    choices = [[some] if isinstance(some, str) else list(some) for some in references]
    for number, some in enumerate(choices, 1):
        if not some:
            raise InputError(f"sentence {number} has no reference", hint="give at least one")
    return choices


def _same_number(outputs: Sequence[Any], references: Sequence[Any]) -> None:
    if len(outputs) != len(references):
        hint = "give each output, also an empty one, its reference or list of references"
        raise InputError(f"{len(outputs)} outputs have {len(references)} references", hint=hint)
    if not outputs:
        raise InputError("there are no outputs to score")


def _streams(choices: list[list[str]]) -> list[list[Any]]:
    """References as sacreBLEU takes them: the first of all sentences, the second of all (or None) …"""
    most = max(map(len, choices))
    return [[some[i] if i < len(some) else None for some in choices] for i in range(most)]
