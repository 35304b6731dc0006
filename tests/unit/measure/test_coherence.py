"""Repetition and names along a text."""

from ensue.measure.coherence import names_of, segments, words_of


def test_a_text_that_repeats_itself_is_found_out_after_its_first_round():
    loop = "one two three four five six seven eight nine ten " * 4
    first, *others = segments("Listen:", loop, size=10)
    assert first.repeated == 0 and all(one.repeated >= 0.7 for one in others)
    assert segments("", loop, size=10)[-1].repeated == 1.0


def test_what_the_prompt_said_counts_as_said_before():
    (segment,) = segments("a b c d e f", "a b c d e f", size=6)
    assert segment.repeated == 0.5  # bcd|a … are new, abcd, bcde, cdef are not


def test_names_are_kept_or_replaced():
    text = "then Anna ran home and ate . later on he met Bob and also Carl there ."
    first, second = segments("Once, Anna walked to", text, size=8)
    assert (first.kept, first.new) == (1.0, 0)
    assert (second.kept, second.new) == (0.0, 2)


def test_the_first_word_of_a_sentence_is_no_name():
    assert names_of(words_of("Rain fell. Anna slept. And Ben woke.")) == {"Ben"}


def test_the_rest_of_a_text_is_left_out():
    assert segments("", "a b c", size=4) == []
