"""Scores of evaluation tasks and their standard errors."""

import math

import numpy as np
import pytest

from ensue.measure.task_scores import bootstrap_error, chance_level, choose, mean_and_error, plain_answer, summarise


def test_the_three_ways_to_choose_an_option():
    # longer options have lower log P; a common one has a high log P by itself
    assert choose([-10.0, -12.0], [5, 12], [-4.0, -12.0]) == {"acc": 0, "acc_norm": 1, "acc_uncond": 1}
    assert choose([-1.0, -1.0], [3, 3], [-1.0, -1.0]) == {"acc": 0, "acc_norm": 0, "acc_uncond": 0}


def test_the_standard_error_of_a_share_is_binomial():
    values = [1] * 30 + [0] * 70
    mean, error = mean_and_error(values)
    assert mean == pytest.approx(0.3)
    assert error == pytest.approx(math.sqrt(0.3 * 0.7 / 99))
    assert mean_and_error([1]) == (1.0, None)


def test_the_bootstrap_agrees_with_the_formula_for_a_mean():
    values = np.random.default_rng(0).normal(size=200)
    error = bootstrap_error(lambda some: float(some.mean()), values)
    assert error == pytest.approx(values.std(ddof=1) / math.sqrt(200), rel=0.1)
    assert error == bootstrap_error(lambda some: float(some.mean()), values)
    assert bootstrap_error(lambda some: float(some.mean()), values[:1]) is None


def test_answers_are_compared_without_case_and_punctuation():
    assert plain_answer(" «Paris». ") == plain_answer("paris")
    assert plain_answer("s’il vous plaît") == plain_answer("S'il  vous plaît!")
    assert plain_answer("-734") != plain_answer("734") and plain_answer("1,000") != plain_answer("1000")


def test_the_figures_of_a_cloze_include_its_perplexity_and_groups():
    records = [{"right": {"acc": n % 2}, "log_probs": [-math.log(4)], "group": "ab"[n // 4]} for n in range(8)]
    figures = summarise("cloze", records)
    assert figures["acc"]["value"] == 0.5
    assert figures["perplexity"]["value"] == pytest.approx(4) and figures["perplexity"]["error"] == pytest.approx(
        0, abs=1e-9
    )
    assert figures["groups"]["a"] == {"examples": 4, "value": 0.5, "error": pytest.approx(math.sqrt(0.25 / 3))}


def test_bits_per_byte_are_of_all_texts_together():
    records = [
        {"log_prob": -8 * math.log(2), "bytes": 4, "words": 2},
        {"log_prob": -math.log(2), "bytes": 5, "words": 1},
    ]
    figures = summarise("perplexity", records)
    assert figures["bits_per_byte"]["value"] == pytest.approx(1.0)
    assert figures["word_perplexity"]["value"] == pytest.approx(8.0)


def test_chance_is_the_mean_share_of_one_option():
    assert chance_level("choice", [2, 4]) == pytest.approx(0.375)
    assert chance_level("match", [1, 1]) is None
