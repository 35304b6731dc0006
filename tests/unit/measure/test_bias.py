"""Measures of bias on numbers made by hand."""

import math

import numpy as np
import pytest

from ensue.data.bias_items import Reference, StereotypePair
from ensue.measure.bias import (
    adjust_together,
    associated_words,
    group_means,
    pmi,
    preference,
    pronoun_odds,
    reference_accuracy,
    word_table,
)
from ensue.measure.sentiment import WordList


def test_group_means_have_counts_intervals_and_differences():
    values = np.array([1.0, 1.0, 0.0, 0.0, -1.0, 0.0])
    rows = group_means(values, ["b", "b", "b", "a", "a", "a"], ["t"] * 6, samples=300)
    assert [row["group"] for row in rows] == ["b", "a"]  # the order of the data
    first = rows[0]
    assert first["count"] == 3 and first["mean"] == pytest.approx(2 / 3)
    assert first["low"] < 2 / 3 < first["high"]
    assert first["difference"] == pytest.approx(2 / 3 + 1 / 3)
    assert first["p"] == pytest.approx(rows[1]["p"])  # two groups: the same comparison
    assert first["p_adjusted"] >= first["p"]


def test_noise_is_seen_as_noise_and_a_difference_as_one():
    random = np.random.default_rng(0)
    groups, strata = ["x"] * 60 + ["y"] * 60, ["s", "t"] * 60
    noise = random.normal(size=120)
    assert group_means(noise, groups, strata, samples=300)[0]["p_adjusted"] > 0.05
    noise[:60] += 1.0
    assert group_means(noise, groups, strata, samples=300)[0]["p_adjusted"] < 0.05


def test_p_values_are_adjusted_over_all_axes():
    axes = [[{"p": 0.01}, {"p": 0.5}], [{"p": 0.02}]]
    adjust_together(axes)
    assert [row["p_adjusted"] for axis in axes for row in axis] == pytest.approx([0.03, 0.5, 0.04])


def test_one_group_has_nothing_to_differ_from():
    (row,) = group_means(np.array([0.5, 0.1]), ["x", "x"], ["", ""], samples=50)
    assert row["difference"] == 0.0 and row["p_adjusted"] == 1.0


def test_pmi_by_hand():
    # "kind" is in 8 of 10 texts about women and in 2 of 10 about men: P(w) = 10/20
    value = pmi(np.array([[8.0], [2.0]]), np.array([10, 10]), smoothing=0.0)
    assert value[:, 0] == pytest.approx([math.log2(0.8 / 0.5), math.log2(0.2 / 0.5)])
    smoothed = pmi(np.array([[8.0], [2.0]]), np.array([10, 10]), smoothing=0.5)
    assert smoothed[0, 0] == pytest.approx(math.log2((8.5 / 11) / (10.5 / 21)))


def test_a_word_counts_once_in_a_text_and_rare_words_and_stop_words_do_not():
    names, present = word_table(["kind kind man", "kind", "old man"], frozenset({"man"}), min_count=2)
    assert names == ["kind"]
    assert present[:, 0].tolist() == [True, True, False]


def test_associated_words_find_the_word_that_differs():
    women, men = ["a gentle soul who sings"] * 18 + ["a tall soul"] * 2, ["a strong soul who sings"] * 17 + ["tall"] * 3
    groups = ["women"] * 20 + ["men"] * 20
    rows = associated_words(women + men, groups, ["t"] * 40, frozenset({"a", "who"}), samples=200)
    best = rows[0]["words"][0]
    assert (best["word"], best["count"], best["others"]) == ("gentle", 18, 0)
    assert best["low"] < best["pmi"] < best["high"] and best["p"] < 0.05
    # all 18 texts with it are of this half of the texts: Wilson's interval of 18/18 starts at 0.824
    assert (best["low"], best["high"]) == pytest.approx((math.log2(0.8241 / 0.5), 1.0), abs=1e-3)
    assert rows[1]["words"][0]["word"] == "strong"
    shared = [word for row in rows for word in row["words"] if word["word"] == "soul"]
    assert all(word["p"] > 0.05 for word in shared)  # both have it


def test_words_of_shuffled_groups_are_rarely_marked():
    random = np.random.default_rng(5)
    vocabulary = [f"word{chr(97 + i)}{chr(97 + j)}" for i in range(8) for j in range(8)]
    marked = 0
    for seed in range(20):
        texts = [" ".join(random.choice(vocabulary, size=8)) for _ in range(80)]
        rows = associated_words(texts, ["x", "y"] * 40, ["t"] * 80, samples=60, seed=seed)
        marked += any(word["p"] < 0.05 for row in rows for word in row["words"])
    assert marked <= 4


def test_texts_without_a_frequent_word_have_no_list():
    assert associated_words(["one", "two"], ["x", "y"], ["", ""])[0]["words"] == []


def test_preference_is_the_share_of_pairs_with_ties_as_halves():
    pairs = [StereotypePair("a", "b", category) for category in ("age", "age", "gender", "gender")]
    figures = preference(pairs, np.array([-1.0, -2.0, -3.0, -1.0]), np.array([-2.0, -2.0, -1.0, -4.0]))
    assert figures["share"] == pytest.approx(2.5 / 4)
    assert figures["margin"] == pytest.approx((1 + 0 - 2 + 3) / 4)
    assert [(row["category"], row["share"], row["count"]) for row in figures["categories"]] == [
        ("age", 0.75, 2),
        ("gender", 0.5, 2),
    ]
    assert figures["low"] < figures["share"] < figures["high"]


def reference(side, gender, number):
    return Reference("…", "he", "nurse", "doctor", gender, side, "", number)


def test_reference_accuracy_compares_matched_sentences():
    references = [reference(side, "male", number) for number in range(4) for side in ("pro", "anti")]
    right = np.array([1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0])
    figures = reference_accuracy(references, right)
    assert [(row["side"], row["share"]) for row in figures["sides"]] == [("pro", 0.75), ("anti", 0.25)]
    assert figures["difference"]["mean"] == pytest.approx(0.5) and figures["difference"]["count"] == 4
    assert figures["genders"] == [{"gender": "male", **{k: figures[k] for k in ("count", "share", "low", "high")}}]


def test_sentences_without_a_known_stereotype_have_no_difference():
    figures = reference_accuracy([reference("", "neutral", 0), reference("", "female", 1)], np.array([1.0, 0.0]))
    assert figures["sides"] == [] and figures["difference"] is None
    assert [row["gender"] for row in figures["genders"]] == ["female", "neutral"]


def test_pronoun_odds_are_sorted_from_he_to_she():
    he, she, they = (np.log(p) for p in ([0.1, 0.1, 0.3, 0.3], [0.2, 0.4, 0.1, 0.2], [0.1, 0.1, 0.1, 0.1]))
    rows = pronoun_odds(["nurse", "nurse", "pilot", "pilot"], {"he": he, "she": she, "they": they})
    assert [row["occupation"] for row in rows] == ["pilot", "nurse"]
    nurse = rows[1]
    assert nurse["log_odds"] == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert nurse["shares"] == pytest.approx({"he": 0.2, "she": 0.6, "they": 0.2})
    half = 12.7062 * np.std([math.log(2), math.log(4)], ddof=1) / math.sqrt(2)
    assert nurse["high"] - nurse["log_odds"] == pytest.approx(half)


def test_the_word_list_counts_and_turns_words_after_a_negation():
    words = WordList.built_in()
    texts = ["a kind and generous teacher", "he was not kind", "she hated it", "a kind thief", "a table", ""]
    assert words.scores(texts).tolist() == [1.0, -1.0, -1.0, 0.0, 0.0, 0.0]
