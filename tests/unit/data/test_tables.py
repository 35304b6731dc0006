from __future__ import annotations

import json
from pathlib import Path

import pytest
from pair_files import put

from ensue.core.errors import InputError
from ensue.data.labelled import text_schema
from ensue.data.tables import ColumnRole, ParsedTable, TableSchema, matching_columns, read_table

NAMED = TableSchema(
    (ColumnRole("text", ("text", "review")), ColumnRole("label", ("label",), "value", optional=True)), "example"
)


def read(
    file: Path, columns: dict[str, str] | None = None, roles: TableSchema = NAMED
) -> tuple[ParsedTable, list[tuple[int, ...]]]:
    table = read_table(file, roles, columns or {}, [])
    return table, [(number, *row.values()) for number, row in table.rows]


def complaint(file: Path, columns: dict[str, str] | None = None, roles: TableSchema = NAMED) -> str:
    with pytest.raises(InputError) as caught:
        read(file, columns, roles)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["a.tsv", "a.csv.gz", "a"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_roles_are_assigned_by_the_header_whatever_the_suffix(tmp_path: Path, name: str, mark: str) -> None:
    tabs = put(tmp_path, name, f'{mark}id\tLabel\tReview\r\n7\tgood\tan "odd", film\r\n')
    table, rows = read(tabs)
    assert rows == [(2, 'an "odd", film', "good")]
    assert table.describe() == (
        "tab-separated, with a header, 3 columns: text is column 'Review', label is column 'Label'"
    )
    commas = put(tmp_path, name, f'{mark}id,Label,Review\n7,good,"an ""odd"",\nlong film"\n8,bad,b\n')
    table, rows = read(commas)
    assert rows == [(2, 'an "odd",\nlong film', "good"), (4, "b", "bad")]


def test_records_are_detected_by_content(tmp_path: Path) -> None:
    lines = [{"label": 1, "text": "a", "id": None}, {"text": "b", "label": True}, {"text": "c"}]
    table, rows = read(put(tmp_path, "a.txt", "\n".join(map(json.dumps, lines))))
    assert rows == [(1, "a", "1"), (2, "b", "true"), (3, "c", "")]
    assert table.describe({"label": "0, 1"}) == (
        "JSONL, 3 fields: text is the field 'text', label is the field 'label' (0, 1)"
    )


def test_a_long_field_between_commas(tmp_path: Path) -> None:
    _, rows = read(put(tmp_path, "a.csv", f'text,label\n"{"x, " * 100_000}",1\n'))
    assert len(rows[0][1]) == 300_000


def test_columns_are_chosen_by_number_or_name(tmp_path: Path) -> None:
    file = put(tmp_path, "a.tsv", "one\ttwo_three\n1\tx\n")
    assert read(file, {"text": "Two Three"})[1] == [(2, "x")]
    assert read(file, {"text": "2", "label": "1"})[1] == [(1, "two_three", "one"), (2, "x", "1")]
    assert "there is no column 'four'; name columns by number, or as in the first line: one, two_three" in complaint(
        file, {"text": "four"}
    )
    assert "text and label are the columns 2 and 2" in complaint(file, {"text": "2", "label": "2"})
    assert "2 columns where 3 are needed" in complaint(file, {"text": "3"})
    assert "did you mean 'label'" in complaint(file, {"lable": "1"})
    assert (
        "cannot tell which column is the text; choose it with --columns text=…; there is one, two_three"
        in complaint(file)
    )
    records = put(tmp_path, "a.jsonl", '{"a": "x", "b": "y"}\n')
    assert read(records, {"text": "b"})[1] == [(1, "y")]
    assert "there is no field 'c'; there is a, b" in complaint(records, {"text": "c"})
    assert "both the field 'a'" in complaint(records, {"text": "a", "label": "a"})


def test_lines_of_another_width(tmp_path: Path) -> None:
    file = put(tmp_path, "a.tsv", "text\tlabel\na\t1\nb\n")
    assert complaint(file) == f"{file}:3: 1 column where 2 are needed; give all lines the same columns"
    notes: list[str] = []
    wide = put(tmp_path, "b.tsv", "text\tlabel\na\t1\nb\t1\t0\n")
    assert len(list(read_table(wide, NAMED, {}, notes).rows)) == 2
    assert notes == [f"{wide}: 1 line has more columns than the first, which are ignored (line 3)"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("\n \n", "there is no example in this file"),
        ("just words\n", "has one column"),
        ("Well, a sentence.\nAnother.\nAnd one more.\n", "has one column"),  # commas are in sentences too
        ("A sentence.\nBut, well, another, too.\nYes, one more.\n", "has one column"),
        ('{"text": "a"}\n[1]\n', ":2: not a JSON object; a line should look like"),
        ('{"text": "a"}\n{\n', ":2: not JSON"),
        ('{"text": "a"}\n{"text": 3}\n', ":2: the field 'text' is not text but int"),
        ('{"text": "a"}\n{"label": 3}\n', ":2: there is no field 'text'"),
        ('{"text": "a", "label": 1}\n{"text": "b", "label": []}\n', ":2: the field 'label' is not text but list"),
    ],
)
def test_invalid_input_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    assert said in complaint(put(tmp_path, "a", text))


def test_folders_and_missing_files(tmp_path: Path) -> None:
    assert "is a folder" in complaint(tmp_path)
    assert "no such file" in complaint(tmp_path / "missing")


SENTENCES = [f"It is sentence number {n} of the file." for n in range(60)]


def guessed(tmp_path: Path, rows: list[list[str]], task: str = "classify") -> dict[str, str]:
    file = put(tmp_path, "a", "".join("\t".join(row) + "\n" for row in rows))
    return read_table(file, text_schema(task, require_labels=True), {}, []).column_names  # type: ignore[arg-type]


def test_columns_without_names_are_inferred_from_their_contents(tmp_path: Path) -> None:
    cola = [["gj04" if n < 30 else "cj99", str(n % 2), "*" * (n % 2), text] for n, text in enumerate(SENTENCES)]
    assert guessed(tmp_path, cola) == {"text": "4", "label": "2"}
    sorted_labels = [["1", text] for text in SENTENCES]
    assert guessed(tmp_path, sorted_labels) == {"text": "2", "label": "1"}
    words = [[text, ["joy", "anger", "fear"][n % 3], f"id{n}"] for n, text in enumerate(SENTENCES)]
    assert guessed(tmp_path, words) == {"text": "1", "label": "2"}
    pairs = [[str(n), "yes" if n % 2 else "no", text, text[::-1]] for n, text in enumerate(SENTENCES)]
    assert guessed(tmp_path, pairs, "pair") == {"text1": "3", "text2": "4", "label": "2"}
    scores = [["main", "2012", f"{n:04}", f"{n % 5}.250", text, "Hi to you."] for n, text in enumerate(SENTENCES)]
    assert guessed(tmp_path, scores, "regress") == {"text1": "5", "text2": "6", "label": "4"}
    stars = [[text, str(n % 5 + 1), f"{n}"] for n, text in enumerate(SENTENCES)]
    assert guessed(tmp_path, stars, "regress") == {"text1": "1", "label": "2"}


def test_a_header_of_unknown_names_is_detected(tmp_path: Path) -> None:
    rows = [["opinion", "said"], *([("bad", "good")[n % 2], text] for n, text in enumerate(SENTENCES))]
    assert guessed(tmp_path, rows) == {"text": "said", "label": "opinion"}
    rows = [["how_near", "said"], *([f"{n % 3}.5", text] for n, text in enumerate(SENTENCES))]
    assert guessed(tmp_path, rows, "regress") == {"text1": "said", "label": "how_near"}


def test_roles_that_the_header_does_not_name_are_inferred(tmp_path: Path) -> None:
    rows = [["nr", "what", "sentiment"], *([str(n), text, str(n % 2)] for n, text in enumerate(SENTENCES))]
    assert guessed(tmp_path, rows) == {"text": "what", "label": "sentiment"}


def test_ambiguous_columns_are_an_error(tmp_path: Path) -> None:
    two_labels = [[str(n % 2), str(n % 2), text] for n, text in enumerate(SENTENCES)]
    with pytest.raises(InputError, match="cannot tell which column is the label; choose it with --columns label="):
        guessed(tmp_path, two_labels)
    two_texts = [[str(n % 2), text, text[::-1]] for n, text in enumerate(SENTENCES)]
    with pytest.raises(InputError, match="cannot tell which column is the text; choose it with --columns text="):
        guessed(tmp_path, two_texts)
    ids = [[str(n), text] for n, text in enumerate(SENTENCES)]
    with pytest.raises(InputError, match="cannot tell which column is the label"):
        guessed(tmp_path, ids)


@pytest.mark.parametrize(
    ("text", "said", "there"),
    [
        ("stars\tbody\n1\tgood, very\n", "text=2,label=1", "text=2"),
        ("good, very\tbad\n", "text1=1,text2=2,label=3", "text1=1,text2=2"),
        ("good\tbad\n", "text1=6,text2=7,label=5", ""),
        ("stars,body\n1,good\n", "text=body,label=stars", "text=body"),
        ('{"body": "good"}\n', "text=body,label=stars", "text=body"),
        ("text,label\ngood,1\n", "text=body,label=stars", ""),
        ("Well, this is a text.\n", "text=2,label=1", ""),
        ("A text.\n", "text=1,label=2", ""),
        ("A text.\n", "", ""),
    ],
)
def test_columns_of_training_are_used_if_a_file_has_them(tmp_path: Path, text: str, said: str, there: str) -> None:
    assert matching_columns(put(tmp_path, "a", text), said) == there
