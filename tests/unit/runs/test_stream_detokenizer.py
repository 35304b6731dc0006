"""Text is returned piece by piece, and a piece never changes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ensue.data.tokenizers.char import ByteTokenizer
from ensue.runs.stream_detokenizer import StreamDetokenizer

BYTES = ByteTokenizer()


def told(text: str, stops: list[str], prompt: str = "") -> tuple[list[str], bool]:
    growing = StreamDetokenizer(BYTES, BYTES.encode(prompt).tolist(), stops)
    parts = [growing.add(int(token)) for token in BYTES.encode(text)]
    return [*parts, growing.finish()], growing.stopped


def test_a_character_is_returned_when_all_its_bytes_are_there() -> None:
    parts, _ = told("aé€", [], "p")
    assert parts == ["a", "", "é", "", "", "€", ""]


def test_a_stop_sequence_and_the_text_after_it_are_not_returned() -> None:
    parts, stopped = told("one\n\ntwo", ["\n\n", "zzz"])
    assert "".join(parts) == "one" and stopped
    assert parts[3] == ""  # the first newline might begin the stop word


def test_an_unfinished_stop_sequence_is_returned_at_the_end() -> None:
    parts, stopped = told("abc", ["cd"])
    assert parts == ["a", "b", "", "c"] and not stopped


@given(st.text(max_size=30), st.lists(st.text(min_size=1, max_size=3), max_size=3))
def test_the_pieces_are_the_text_up_to_the_first_stop_sequence(text: str, stops: list[str]) -> None:
    text = text.encode("utf-8", "ignore").decode()
    stops = [stop for stop in (s.encode("utf-8", "ignore").decode() for s in stops) if stop]
    parts, stopped = told(text, stops)
    places = [text.find(stop) for stop in stops if stop in text]
    assert "".join(parts) == (text[: min(places)] if places else text)
    assert stopped == bool(places)


@pytest.mark.parametrize("prompt", ["", "x", "é"])
def test_the_prompt_is_not_returned(prompt: str) -> None:
    assert "".join(told("y", [], prompt)[0]) == "y"


def test_a_stop_sequence_of_replacement_characters_does_not_match_part_of_a_character() -> None:
    assert told("é€a", ["\ufffd"]) == (["", "é", "", "", "€", "a", ""], False)


@settings(deadline=None)
@given(st.integers(90, 260), st.randoms(use_true_random=False))
def test_a_long_text_is_returned_unchanged_though_old_tokens_are_not_decoded_again(size: int, chance) -> None:  # type: ignore[no-untyped-def]
    text = "".join(chance.choice("ab é€\n🙂") for _ in range(size))
    growing = StreamDetokenizer(BYTES, [], ["zz"])
    parts = [growing.add(int(token)) for token in BYTES.encode(text)]
    assert "".join([*parts, growing.finish()]) == text == growing.text
    assert len(growing._tokens) < 110  # else every token would cost as much as the whole text
