import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.core.errors import InputError
from ensue.measure.tries import MAX_REPETITION, compare, repeated_share
from ensue.search.sampling import Sample


def drawn(tokens, mean):
    return Sample(list(tokens), [mean] * len(tokens), ended=False)


LOOP = drawn([1, 2, 3] * 7, -0.1)
SHORT = drawn([5, 0], -0.2)
PLAIN = drawn(range(20), -2.0)
BETTER = drawn(range(30, 49), -1.5)


def test_repetition_is_the_share_of_ngrams_that_stood_before():
    assert repeated_share([1] * 11) == pytest.approx(7 / 8)  # 8 4-grams, all alike
    assert repeated_share([1, 2, 1, 2, 1], n=2) == pytest.approx(1 / 2)  # 12 21 12 21
    assert repeated_share([1, 2, 3]) == 0


def test_best_is_the_most_probable_text_that_is_neither_a_loop_nor_cut_short():
    tries = compare([LOOP, PLAIN, SHORT, BETTER], "best")
    assert [one.chosen for one in tries] == [False, False, False, True]
    assert tries[0].reason == "83% of its 4-grams are repeated" and tries[2].reason == "too short: 2 of 21 tokens"
    assert "-2.000 is lower" in tries[1].reason and "-1.500, of 2 that qualify" in tries[3].reason
    assert tries[3].number == 4 and tries[3].mean_log_prob == pytest.approx(-1.5)


def test_if_every_text_is_a_loop_the_least_repetitive_is_chosen():
    tries = compare([LOOP, drawn([*range(10)] * 2, -3)], "best")
    assert [one.chosen for one in tries] == [False, True] and "none qualifies" in tries[1].reason


def test_first_and_all():
    assert [one.chosen for one in compare([PLAIN, BETTER], "first")] == [True, False]
    assert all(one.chosen for one in compare([PLAIN, BETTER]))
    with pytest.raises(InputError, match="did you mean 'best'"):
        compare([PLAIN], "bset")


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.floats(-5, 0)), min_size=1))
def test_exactly_one_is_chosen_and_none_that_qualifies_is_better(rows):
    samples = [drawn(*row) for row in rows]
    tries = compare(samples, "best")
    (chosen,) = (one for one in tries if one.chosen)
    longest = max(one.tokens for one in tries)
    fit = [one for one in tries if one.repetition <= MAX_REPETITION and 2 * one.tokens >= longest]
    assert all(one.mean_log_prob <= chosen.mean_log_prob for one in fit) and (chosen in fit or not fit)
