import pytest

from ensue.core.errors import InputError
from ensue.data.concordance import Occurrence, concordance

LINES = """government debt problems turning into banking crises as happened in 2009
saying that Europe needs unified banking regulation to replace the hodgepodge
Banking system a shot in the arm
"""


@pytest.fixture
def text(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text(LINES, encoding="utf-8")
    return file


def test_r4_the_contexts_of_banking(text):
    found = concordance([text], "banking", 3)
    assert found.count == 3 and found.words == 11 + 11 + 7
    assert found.occurrences == [
        Occurrence(("problems", "turning", "into"), "banking", ("crises", "as", "happened")),
        Occurrence(("Europe", "needs", "unified"), "banking", ("regulation", "to", "replace")),
        Occurrence((), "Banking", ("system", "a", "shot")),
    ]
    context = [word.lower() for one in found.occurrences for word in (*one.left, *one.right)]
    assert sorted(found.near) == sorted(context) and set(found.near.values()) == {1}


def test_a_window_ends_with_its_line_or_its_paragraph(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("a b\nc d e\n \nf c\n", encoding="utf-8")
    assert dict(concordance([file], "c", 2).near) == {"d": 1, "e": 1, "f": 1}
    assert dict(concordance([file], "c", 2, paragraphs=True).near) == {"a": 1, "b": 1, "d": 1, "e": 1, "f": 1}


def test_windows_do_not_cross_documents(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name} x", encoding="utf-8")
    assert set(concordance([tmp_path / "a.txt", tmp_path / "b.txt"], "x").near) == {"a", "b"}
    assert concordance([tmp_path / "a.txt", tmp_path / "b.txt"], "x").near.total() == 2


def test_the_ratio_compares_with_chance(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("x y\nz z\n", encoding="utf-8")
    found = concordance([file], "x", 1)
    assert found.ratio("y") == (1 / 1) / (1 / 4)


def test_a_word_that_occurs_twice_in_a_window_is_counted_twice(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("no bank like this bank\n", encoding="utf-8")
    found = concordance([file], "bank", 3, most=1)
    assert found.count == 2 and len(found.occurrences) == 1
    assert dict(found.near) == {"no": 1, "like": 2, "this": 2, "bank": 2}


def test_the_error_for_a_missing_word_suggests_similar_ones(text):
    with pytest.raises(InputError, match=r"text\.txt: the text has no 'bankin'; near it: banking"):
        concordance([text], "bankin")
    with pytest.raises(InputError, match="give one word, without spaces"):
        concordance([text], "unified banking")
    with pytest.raises(InputError, match="a window of 0 holds no context"):
        concordance([text], "banking", 0)
