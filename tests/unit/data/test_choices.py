from __future__ import annotations

import json
from pathlib import Path

import pytest
from pair_files import put

from ensue.core.errors import InputError
from ensue.data.choices import read_choices
from ensue.data.labelled import ChoiceQuestion, ReadOptions

SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"


def test_swag_is_read(tmp_path: Path) -> None:
    rows = '0,v1,1,"He sits. He",He sits.,He,gold,"stands, up.",eats.,runs.,sleeps.,2\n'
    file = put(tmp_path, "a.csv", SWAG + rows)
    expected = ChoiceQuestion("He sits.", ("He stands, up.", "He eats.", "He runs.", "He sleeps."), 2, f"{file}:2")
    assert read_choices([file], ReadOptions(), []) == [expected]


@pytest.mark.parametrize("key", ["endings", "choices"])
@pytest.mark.parametrize("label", [1, "1", "B"])
def test_records_with_a_list_of_choices(tmp_path: Path, key: str, label: object) -> None:
    record = {"context": "He sits.", key: ["Then he stands.", "Then he eats."], "label": label}
    first = {**record, "label": 0}
    found = read_choices([put(tmp_path, "a.jsonl", f"{json.dumps(first)}\n{json.dumps(record)}\n")], ReadOptions(), [])
    assert [(choice.choices, choice.label) for choice in found] == [
        (("Then he stands.", "Then he eats."), n) for n in (0, 1)
    ]


def test_labels_that_count_from_one_are_detected(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(
        tmp_path, "a.tsv", "premise\tchoice1\tchoice2\tlabel\nIt rains.\tWet.\tDry.\t1\nIt burns.\tWet.\tHot.\t2\n"
    )
    assert [choice.label for choice in read_choices([file], ReadOptions(), notes)] == [0, 1]
    assert "labels count the choices from 1" in notes[0]
    bare = put(tmp_path, "b.tsv", "premise\tchoice1\tchoice2\nIt rains.\tWet.\tDry.\n")
    assert read_choices([bare], ReadOptions(require_labels=False), [])[0].label is None
    with pytest.raises(InputError, match="cannot tell which column is the label"):
        read_choices([bare], ReadOptions(), [])


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"context": "a", "endings": ["b", "c"], "label": 5}, ":2: the label 5 is none of 2 choices"),
        ({"context": "a", "endings": ["b", "c"], "label": "x"}, ":2: the label 'x' is not the number of a choice"),
        ({"context": "a", "endings": ["b", "c"], "label": None}, ":2: the label is missing"),
        ({"context": "a", "endings": ["b"], "label": 0}, ":2: 1 choice where there must be two"),
        ({"context": "a", "endings": "b", "label": 0}, ":2: the choices are not a list of texts"),
        ({"context": "a", "endings": [1, 2], "label": 0}, ":2: the choices are not a list of texts"),
        ({"context": "a", "label": 0}, ":2: 0 choices where there must be two"),
    ],
)
def test_wrong_choices_are_errors(tmp_path: Path, record: dict[str, object], said: str) -> None:
    good = {"context": "a", "endings": ["b", "c"], "label": 0}
    file = put(tmp_path, "a.jsonl", f"{json.dumps(good)}\n{json.dumps(record)}\n")
    with pytest.raises(InputError) as caught:
        read_choices([file], ReadOptions(), [])
    assert str(caught.value).startswith(f"{file}{said}")


def test_a_table_without_choices_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no choices"):
        read_choices([put(tmp_path, "a", "context\tlabel\na\t1\n")], ReadOptions(), [])
