"""Control characters of data are escaped, and fields come back exactly."""

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from ensue.core.escapes import escape_breaks, escape_controls, escape_field, escape_json, unescape_field
from ensue.core.wording import table_lines

SOME = st.text(st.sampled_from("a\\ntxu1b0\t\n\r\x00\x1b\x7f\x85\x9b\u061c\u200f\u202e\u2028\u2029\u2066é漢"))


def test_every_control_and_bidi_character_is_escaped():
    bidi = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    for code in range(0x110000):
        character = chr(code)
        kind = unicodedata.category(character)
        marks = character in "\u061c\u200e\u200f" or unicodedata.bidirectional(character) in bidi
        assert (escape_controls(character) != character) == (kind in ("Cc", "Zl", "Zp") or marks), hex(code)


@given(SOME)
def test_a_field_has_no_line_break_or_tab_and_comes_back_exactly(text):
    field = escape_field(text)
    assert len(field.splitlines()) <= 1 and "\t" not in field
    assert unescape_field(field) == text


@given(SOME)
def test_json_keeps_its_value_without_raw_controls(text):
    written = escape_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(written) == text and escape_controls(written) == written


def test_a_translation_stays_on_its_line_and_is_otherwise_unchanged():
    assert escape_breaks("a\tb \\n c") == "a\tb \\n c"
    assert escape_breaks("a\nb\u2028c\x85") == "a\\nb\\u2028c\\x85"


def test_cells_of_a_table_cannot_forge_a_row():
    assert len(table_lines(["label", "f1"], [["a\n─", "1"], ["b\tc", "2"]])) == 4
