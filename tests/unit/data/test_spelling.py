from __future__ import annotations

import json
import math
from collections import Counter

import pytest

from ensue.data.spelling import SpellingModel, Spellings

WORDS = Counter({"the": 50, "then": 7, "é": 3, "": 2, "antidisestablishmentarianism": 1})


@pytest.mark.parametrize("model", [SpellingModel.fit({}), SpellingModel.fit(WORDS)])
def test_probabilities_of_strings_sum_to_at_most_one(model: SpellingModel) -> None:
    ends = 2 ** -model.bits("")
    ends += sum(2 ** -model.bits(chr(code)) for code in range(128))
    assert 0 < ends < 1
    grams = [256 + 258 * 257 * (1 + 258 + 258**2)]  # the end symbol after nothing
    total = sum(model._probability(grams[0] - 256 + symbol) for symbol in range(257))
    assert math.isclose(total, 1, rel_tol=1e-12)


def test_every_string_is_possible_and_familiar_ones_are_cheap() -> None:
    model = SpellingModel.fit(WORDS)
    assert model.bits("the") < model.bits("teh") < math.inf
    assert math.isfinite(model.bits("\0🎈" * 50))


def test_state_goes_through_json() -> None:
    spellings = Spellings.of_words(Counter({"<unk>": 90, "foo": 3}), {"bar": 1}, "<unk>")
    again = Spellings.restore(json.loads(json.dumps(spellings.state())))
    for word in ("<unk>", "foo", "bar", "é"):
        assert again.bits(word) == spellings.bits(word)
    assert SpellingModel.restore(SpellingModel.fit({}).state()).bits("a") == SpellingModel.fit({}).bits("a")


def test_known_strings_and_escapes_share_one_unit_of_probability() -> None:
    gaps = Spellings.of_gaps(Counter({" ": 10_000, "  ": 30, "\t": 1}))
    known = sum(2 ** -gaps.bits(gap) for gap in (" ", "  ", "\t"))
    assert known + gaps.escapes / gaps._total == pytest.approx(1)
    assert gaps.bits(" ") < 0.01
    few = Spellings.of_gaps(Counter({" ": 10_000, "  ": 30, "\t": 1}), most=1)
    assert 0.01 > few.bits(" ") > 0 and few.bits("\t") > 8


def test_a_frequent_literal_unknown_token_costs_almost_nothing() -> None:
    words = Spellings.of_words(Counter({"<unk>": 50_000}), {"a": 1}, "<unk>")
    assert words.bits("<unk>") < 1e-4
    assert 15 < words.bits("zebra") < 100


def test_strings_seen_more_often_than_fits_beside_their_n_grams_are_counted_the_same() -> None:
    often = {"ab": 5, "b": 2}
    model, many = SpellingModel.fit(often), SpellingModel.fit({word: count << 30 for word, count in often.items()})
    assert many._grams.tolist() == model._grams.tolist()
    assert many._seen.tolist() == [count << 30 for count in model._seen.tolist()]


def test_groups_of_strings_count_as_one() -> None:
    both, one = SpellingModel.fit({"ab": 1}, {"ba": 3}), SpellingModel.fit({"ab": 1, "ba": 3})
    assert both.state() == one.state()
    assert both.bits("aba") == one.bits("aba")
