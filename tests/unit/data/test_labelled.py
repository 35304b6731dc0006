from __future__ import annotations

from pathlib import Path

import pytest
from pair_files import put

from ensue.core.errors import InputError
from ensue.data.labelled import LabelledText, ReadOptions, TextTask, read_labelled, read_texts

GLUE = {
    "cola": ("classify", "gj04\t1\t\tHe went home.\ngj04\t0\t*\tHe home went.\n"),
    "sst2": ("classify", "sentence\tlabel\nHe went home. \t1\nHe home went.\t0\n"),
    "imdb": ("classify", "1\tHe went home.\n0\tHe home went.\n"),
    "csv": ("classify", ',review,sentiment\n0,He went home.,1\n1,He home went.,"0"\n'),
    "jsonl": ("classify", '{"text": "He went home.", "label": 1}\n{"text": "He home went.", "label": 0}\n'),
}
PAIRS = {
    "mrpc": (
        "pair",
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\tA b.\tB a.\r\n0\t7\t8\tC d.\tE f.\r\n",
    ),
    "rte": ("pair", "index\tsentence1\tsentence2\tlabel\n0\tA b.\tB a.\t1\n1\tC d.\tE f.\t0\n"),
    "qnli": ("pair", "index\tquestion\tsentence\tlabel\n0\tA b.\tB a.\t1\n1\tC d.\tE f.\t0\n"),
    "stsb": ("regress", "m\tv\t2012\t0001\t1\tA b.\tB a.\nm\tv\t2012\t0001\t0.0\tC d.\tE f.\thttp\thttp\n"),
}


def read(
    folder: Path, text: str, task: TextTask, columns: str = "", notes: list[str] | None = None
) -> list[LabelledText]:
    return read_labelled([put(folder, "a", text)], task, ReadOptions(columns), [] if notes is None else notes)


def complaint(folder: Path, text: str, task: TextTask = "classify", columns: str = "") -> str:
    with pytest.raises(InputError) as caught:
        read(folder, text, task, columns)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(folder / "a"))


@pytest.mark.parametrize("name", GLUE)
def test_one_text_and_its_label_in_many_layouts(tmp_path: Path, name: str) -> None:
    task, text = GLUE[name]
    found = read(tmp_path, text, task)  # type: ignore[arg-type]
    assert [(example.texts, example.label) for example in found] == [
        (("He went home.",), "1"),
        (("He home went.",), "0"),
    ]
    last = len(text.splitlines())
    assert found[1].where == f"{tmp_path / 'a'}:{last}"


@pytest.mark.parametrize("name", PAIRS)
def test_two_texts_and_their_label_in_many_layouts(tmp_path: Path, name: str) -> None:
    task, text = PAIRS[name]
    found = read(tmp_path, text, task)  # type: ignore[arg-type]
    assert [example.texts for example in found] == [("A b.", "B a."), ("C d.", "E f.")]
    assert [float(example.label or "nan") for example in found] == [1, 0]


def test_one_note_describes_how_a_table_was_read(tmp_path: Path) -> None:
    notes: list[str] = []
    read(tmp_path, GLUE["cola"][1], "classify", notes=notes)
    assert notes == [
        f"{tmp_path / 'a'}: tab-separated, no header, 4 columns: text is column 4, label is column 2 (0, 1); "
        "first: “He went home.” → 1"
    ]
    notes.clear()
    read(tmp_path, PAIRS["stsb"][1], "regress", notes=notes)
    assert "label is column 5 (0 to 1); first: “A b.” and “B a.” → 1" in notes[1]


def test_an_ignored_second_text_is_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    read(tmp_path, PAIRS["rte"][1], "classify", "text=sentence1", notes)
    assert "'sentence2' looks like a second text, which classify does not read" in notes[1]
    notes.clear()
    read(tmp_path, PAIRS["rte"][1], "pair", notes=notes)
    read(tmp_path, GLUE["sst2"][1], "classify", notes=notes)
    assert not any("second text" in note for note in notes)


def test_several_files_may_differ_in_layout(tmp_path: Path) -> None:
    files = [put(tmp_path, f"{name}.gz", GLUE[name][1]) for name in GLUE]
    found = read_labelled(files, "classify", ReadOptions(), [])
    assert len({example.texts for example in found}) == 2 and len(found) == 2 * len(files)
    one = put(tmp_path, "one", "text\tscore\nA b c.\t1.5\nD e f.\t2\n")
    two = put(tmp_path, "two", PAIRS["stsb"][1])
    with pytest.raises(InputError, match=r"2 texts where .* has 1"):
        read_labelled([one, two], "regress", ReadOptions(), [])


def test_given_columns_override_inference(tmp_path: Path) -> None:
    text = "a\tb\tc\nd\te\tf\n"
    found = read(tmp_path, text, "classify", "text=2,label=1")
    assert [(example.texts, example.label) for example in found] == [(("b",), "a"), (("e",), "d")]
    found = read(tmp_path, text, "pair", "text1=3, text2=1, label=2")
    assert [(example.texts, example.label) for example in found] == [(("c", "a"), "b"), (("f", "d"), "e")]
    found = read(tmp_path, "x\t1\ny\t2\n", "regress", "text=1,label=2")
    assert [example.texts for example in found] == [("x",), ("y",)]
    assert "columns are named as text=2,label=1" in complaint(tmp_path, text, columns="text")
    assert "unknown column 'words'" in complaint(tmp_path, text, columns="words=1")


def test_empty_texts_are_left_out_and_noted(tmp_path: Path) -> None:
    notes: list[str] = []
    found = read(tmp_path, "text\tlabel\na b\t1\n \t0\n\nc d\t0\n", "classify", notes=notes)
    assert [example.where[-1] for example in found] == ["2", "5"]
    assert notes[0] == f"{tmp_path / 'a'}: left out 2 lines without text (lines 3, 4)"
    assert ": there is no text in any line" in complaint(tmp_path, "text\tlabel\n\t1\n \t0\n")


@pytest.mark.parametrize(
    ("text", "task", "said"),
    [
        ("text\tlabel\na\t1\nb\t \n", "classify", ":3: the label is missing"),
        ("good\ta b c\n\td e f\nbad\tg h i\n", "classify", ":2: the label is missing"),
        ("text\tlabel\na\t1\nb\n", "classify", ":3: 1 column where 2 are needed"),
        ("text\tlabel\na\tx\nb\tx\n", "classify", ": every line has the label 'x', so there is nothing to learn"),
        ("text\tlabel\na\t3\nb\t3\n", "regress", ": every line has the label '3', so there is nothing to learn"),
        ("1.5\ta b c\ngood\td e f\n2\tg h i\n", "regress", ":2: the label 'good' is not a number"),
        ("text\tscore\na\t1\nb\tnan\n", "regress", ":3: the label 'nan' is not a number"),
        ("text\tscore\na\t1\nb\tinf\n", "regress", ":3: the label 'inf' is not a number"),
        ("text\tscore\na\t1\nb\t3,5\n", "regress", ":3: the label '3,5' is not a number"),
        ('{"text": "a", "label": NaN}\n', "regress", ":1: the label 'NaN' is not a number"),
        ("text,label\na,1\nb, really,0\n", "classify", ":3: 3 columns where the first line has 2"),
        ("text\tlabel\n", "classify", ": there is no text in any line"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, task: TextTask, said: str) -> None:
    assert complaint(tmp_path, text, task).startswith(said)


def test_a_different_label_in_every_line_is_an_error(tmp_path: Path) -> None:
    text = "text\tlabel\n" + "".join(f"a\t{n}.5\n" for n in range(20))
    assert "every line has a different label" in complaint(tmp_path, text)
    assert len(read(tmp_path, text, "regress")) == 20


def test_one_label_is_enough_for_scoring(tmp_path: Path) -> None:
    file = put(tmp_path, "a", "text\tlabel\na\tx\nb\tx\n")
    assert len(read_labelled([file], "classify", ReadOptions(for_training=False), [])) == 2


# Texts to predict.


def test_plain_lines_are_texts(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a.txt.gz", "One, two.\n\nThree, of course, and four.\n")
    found = read_texts(file, "", 1, notes)
    assert found == [
        LabelledText(("One, two.",), None, f"{file}:1"),
        LabelledText(("Three, of course, and four.",), None, f"{file}:3"),
    ]
    assert "line 2" in notes[0]
    two = put(tmp_path, "b.txt", "one\ttwo\nthree\tfour\n")
    assert [(example.texts, example.label) for example in read_texts(two, "", 2)] == [
        (("one", "two"), None),
        (("three", "four"), None),
    ]
    assert [example.texts for example in read_texts(two, "text=2", 1)] == [("two",), ("four",)]


@pytest.mark.parametrize("name", GLUE)
def test_a_labelled_table_keeps_its_labels(tmp_path: Path, name: str) -> None:
    found = read_texts(put(tmp_path, "a", GLUE[name][1]), "", 1)
    assert [(example.texts[0], example.label) for example in found] == [("He went home.", "1"), ("He home went.", "0")]


def test_a_table_without_labels_has_none(tmp_path: Path) -> None:
    file = put(tmp_path, "a", "index\tsentence\n0\tHe went.\n1\tHe came.\n")
    assert [(example.texts, example.label) for example in read_texts(file, "", 1)] == [
        (("He went.",), None),
        (("He came.",), None),
    ]
    scored = put(tmp_path, "b", PAIRS["stsb"][1])
    assert [example.label for example in read_texts(scored, "", 2, numeric=True)] == ["1", "0.0"]
    with pytest.raises(InputError, match="2 texts in a line where the model takes 1"):
        read_texts(scored, "", 1, numeric=True)
    with pytest.raises(InputError, match="one column"):
        read_texts(put(tmp_path, "c", "a b\nc d\n"), "", 2)


def test_a_chosen_text_column_may_have_others_beside_it(tmp_path: Path) -> None:
    text = "Quality\t#1 String\t#2 String\n1\tOne two.\tThree four five.\n0\tSix.\tSeven eight nine.\n"
    assert [one.texts for one in read(tmp_path, text, "classify", "text=2")] == [("One two.",), ("Six.",)]
    assert ":1: 3 columns where 9 are needed" in complaint(tmp_path, text, columns="text=9")


def test_labels_that_are_too_large_are_errors(tmp_path: Path) -> None:
    assert ":2: the label '1e39' is too large" in complaint(tmp_path, "a b\tc d\t1.5\ne f\tg h\t1e39\n", "regress")
