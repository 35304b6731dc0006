"""The texts of a table as documents: one per line, without labels, split like any other text."""

import gzip

import pytest

from ensue.core.errors import InputError
from ensue.data.reading import measure_text, read_pieces, table_text_source
from ensue.data.sources import Slice, TableColumn
from ensue.data.splitting import hold_out
from ensue.data.tokenizers.char import ByteTokenizer
from ensue.data.tokens import tokenize

ROWS = [(str(number % 2), f"review number {number} is a fine text") for number in range(40)]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "train.tsv.gz"
    path.write_bytes(gzip.compress("".join(f"{label}\t{text}\n" for label, text in ROWS).encode()))
    return path


def test_each_lines_text_is_a_document(table):
    found = list(read_pieces([TableColumn(table, "text=2")]))
    assert [piece.text for piece in found] == [text for _, text in ROWS]
    assert all(piece.ends for piece in found) and found[3].origin == f"{table}:4"
    text = tokenize([TableColumn(table, "text=2")], ByteTokenizer())
    assert text.documents == 40 and text.bytes == sum(len(text) for _, text in ROWS)


def test_a_held_out_part_and_the_rest_join_to_all_texts(table):
    train, valid = hold_out([TableColumn(table, "text=2")], 0.2)
    assert isinstance(train[0], Slice)
    parts = [[piece.text for piece in read_pieces(part)] for part in (train, valid)]
    assert [text for part in parts for text in part] == [text for _, text in ROWS]
    assert 5 <= len(parts[1]) <= 11


@pytest.mark.parametrize(
    ("name", "text", "columns"),
    [
        ("a.csv", 'label,review\n1,"fine, really"\n0,dull\n', "text=review"),
        ("a.jsonl", '{"label": 1, "body": "fine, really"}\n{"label": 0, "body": "dull"}\n', "text=body"),
        ("a.tsv", "fine, really\t1\n\t0\ndull\t0\n", "text=1"),
    ],
)
def test_tables_of_every_kind(tmp_path, name, text, columns):
    (tmp_path / name).write_text(text)
    notes = []
    found = [piece.text for piece in read_pieces([TableColumn(tmp_path / name, columns)], notes=notes)]
    assert found == ["fine, really", "dull"] and (name != "a.tsv" or "without text" in notes[0])


def test_a_line_with_too_few_columns_is_an_error_or_left_out(tmp_path):
    (tmp_path / "a.tsv").write_text("1\tfine\nbroken\n0\tdull\n")
    with pytest.raises(InputError, match=r"a\.tsv:2"):
        measure_text([TableColumn(tmp_path / "a.tsv", "text=2")])
    notes = []
    found = [piece.text for piece in read_pieces([TableColumn(tmp_path / "a.tsv", "text=2", skip=True)], notes=notes)]
    assert found == ["fine", "dull"] and notes


@pytest.mark.parametrize("columns", ["text=2,label=1", "label=1", "source=1"])
def test_only_the_text_column_may_be_named(columns):
    with pytest.raises(InputError, match=r"text=2"):
        table_text_source("a.tsv", columns)
