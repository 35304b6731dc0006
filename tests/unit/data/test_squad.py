from __future__ import annotations

import json
from pathlib import Path

import pytest
from pair_files import put

from ensue.core.errors import InputError
from ensue.data.labelled import Answer, Question, ReadOptions
from ensue.data.squad import locate_answer, read_questions

PASSAGE = "Ada wrote the notes in 1843. She wrote them in London."


def squad(*asked: dict[str, object]) -> str:
    return json.dumps({"version": "v2.0", "data": [{"title": "t", "paragraphs": [{"context": PASSAGE, "qas": asked}]}]})


def asked(own: str, *answers: tuple[str, int], **more: object) -> dict[str, object]:
    given = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": own, "question": f"{own}?", "answers": given, **more}


def complaint(file: Path, columns: str = "") -> str:
    with pytest.raises(InputError) as caught:
        read_questions([file], ReadOptions(columns), [])
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(file))


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a"])
@pytest.mark.parametrize("indent", [None, 2])
def test_squad_is_read(tmp_path: Path, name: str, indent: int | None) -> None:
    text = squad(
        asked("when", ("1843", 23), ("in 1843", 20)),
        asked("why", is_impossible=True, plausible_answers=[{"text": "London", "answer_start": 47}]),
    )
    file = put(tmp_path, name, json.dumps(json.loads(text), indent=indent))
    notes: list[str] = []
    answers = (Answer("1843", 23), Answer("in 1843", 20))
    assert read_questions([file], ReadOptions(), notes) == [
        Question("when", "when?", PASSAGE, answers, False, f"{file}: when"),
        Question("why", "why?", PASSAGE, (), True, f"{file}: why"),
    ]
    assert notes == [f"{file}: 2 questions, 1 of them without an answer"]


def test_questions_without_answers_are_for_prediction(tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", squad({"id": "when", "question": "When?"}))
    assert complaint(file) == (
        ": when: the answer is missing; give answers, or choose their column with --columns answer=…"
    )
    (found,) = read_questions([file], ReadOptions(require_labels=False), [])
    assert found.answers == () and not found.impossible


def test_an_answer_at_another_offset_is_located_and_counted(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a.json", squad(asked("what", ("wrote", 30)), asked("when", ("1843", 23))))
    assert read_questions([file], ReadOptions(), notes)[0].answers == (Answer("wrote", 33),)
    assert "1 answer found at another offset of the passage" in notes[0] and f"(first: {file}: what)" in notes[0]


def test_an_answer_that_does_not_occur_is_left_out_and_counted(tmp_path: Path) -> None:
    notes: list[str] = []
    file = put(tmp_path, "a.json", squad(asked("who", ("Charles", 0)), asked("when", ("1843", 23), ("1844", 23))))
    assert [(question.id, len(question.answers)) for question in read_questions([file], ReadOptions(), notes)] == [
        ("when", 1)
    ]
    assert f"2 answers are not in their passage (first: {file}: who), and left out" in notes[0]
    nowhere = put(tmp_path, "b.json", squad(asked("who", ("Charles", 0)), asked("why", is_impossible=True)))
    assert "no answer is in its passage" in complaint(nowhere)


@pytest.mark.parametrize(
    ("passage", "text", "start", "expected"),
    [
        ("a b a b", "b", 2, Answer("b", 2)),
        ("a b a b", "b", 5, Answer("b", 6)),
        ("a b a b", "b", -1, Answer("b", 2)),
        ("the party of art", "art", None, Answer("art", 13)),
        ("the party", "art", None, Answer("art", 5)),
        ("It's  odd!", "It 's odd !", 0, Answer("It's  odd!", 0)),
        ("It's odd!", "even", 0, None),
        ("a (b) c", "(b)", 0, Answer("(b)", 2)),
    ],
)
def test_answers_are_located_at_the_nearest_whole_word(
    passage: str, text: str, start: int | None, expected: Answer | None
) -> None:
    found = locate_answer(passage, text, start)
    assert found == expected
    assert found is None or passage[found.start :].startswith(found.text)


SUBJQA = "item_id,q_review_id,question,review,human_ans_spans,human_ans_indices\n"


def test_subjqa_is_read_and_rows_of_one_question_are_joined(tmp_path: Path) -> None:
    rows = [
        'i,q1,How is it?,"Slow, but\nfine. ANSWERNOTFOUND",Slow,"(0, 4)"',
        'i,q1,How is it?,"Slow, but\nfine. ANSWERNOTFOUND",fine .,"(10, 15)"',
        'i,q1,How is it?,"Slow, but\nfine. ANSWERNOTFOUND",ANSWERNOTFOUND,"(16, 30)"',
        'i,q2,How much?,Cheap. ANSWERNOTFOUND,ANSWERNOTFOUND,"(7, 21)"',
    ]
    file = put(tmp_path, "a.csv.gz", SUBJQA + "\n".join(rows) + "\n")
    answers = (Answer("Slow", 0), Answer("fine.", 10))
    assert read_questions([file], ReadOptions(), []) == [
        Question("q1", "How is it?", "Slow, but\nfine.", answers, False, f"{file}:2"),
        Question("q2", "How much?", "Cheap.", (), True, f"{file}:8"),
    ]


def test_tables_without_ids_and_starts(tmp_path: Path) -> None:
    text = f"question\tcontext\tanswer\nWhen?\t{PASSAGE}\t1843\nWhere?\t{PASSAGE}\tLondon\nWhen?\t{PASSAGE}\tin 1843\n"
    file = put(tmp_path, "a.tsv", text)
    found = read_questions([file], ReadOptions(), [])
    assert [question.id for question in found] == [f"{file}:2", f"{file}:3"]
    assert [answer.text for answer in found[0].answers] == ["1843", "in 1843"]
    bare = put(tmp_path, "b.tsv", text.split("\n", 1)[1])
    assert [q.answers for q in read_questions([bare], ReadOptions("question=1,passage=2,answer=3"), [])] == [
        q.answers for q in found
    ]
    assert "--columns" in complaint(bare)


@pytest.mark.parametrize(
    "held",
    [
        {"answers": {"text": ["1843", "London"], "answer_start": [23, 47]}},
        {"answers": [{"text": "1843", "answer_start": 23}, {"text": "London", "answer_start": 47}]},
        {"answers": ["1843", "London"]},
        {"answer": ["1843", "London"], "answer_start": [23, 47]},
    ],
)
def test_records_may_have_answers_in_many_forms(tmp_path: Path, held: dict[str, object]) -> None:
    record = {"id": 7, "title": "t", "context": PASSAGE, "question": "What?", **held}
    for name in ("a.jsonl", "a.json"):
        (found,) = read_questions([put(tmp_path, name, json.dumps(record) + "\n")], ReadOptions(), [])
        assert found.id == "7" and found.answers == (Answer("1843", 23), Answer("London", 47))


def test_files_are_joined_and_an_id_belongs_to_one_question(tmp_path: Path) -> None:
    one = put(tmp_path, "a.json", squad(asked("when", ("1843", 23))))
    other = put(tmp_path, "b.json", squad(asked("where", ("London", 47))))
    assert [question.id for question in read_questions([one, other], ReadOptions(), [])] == ["when", "where"]
    assert len(read_questions([one, one], ReadOptions(), [])) == 1
    clash = put(tmp_path, "c.json", squad(asked("when", ("1843", 23)), {**asked("when"), "question": "Why?"}))
    assert f"the id 'when' is also that of {clash}: when" in complaint(clash)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.json", '{"data": [\n', ": not JSON"),
        ("a.json", "[{}]", ": there is no list 'data'"),
        ("a.json", '{"data": [{}]}', ": data[0]: there is no list 'paragraphs'"),
        ("a.json", '{"data": [{"paragraphs": [{"qas": []}]}]}', ": data[0].paragraphs[0]: there is no text 'context'"),
        ("a.json", squad({"id": "x"}), ": data[0].paragraphs[0].qas[0]: there is no text 'question'"),
        ("a.json", squad(), ": there is no question in this file"),
        (
            "a.json",
            squad(asked("x", ("1843", "one"))),
            ": data[0].paragraphs[0].qas[0]: the answer's start 'one' is not",
        ),  # type: ignore[arg-type]
        ("a.json", squad({**asked("x"), "answers": [3]}), ": data[0].paragraphs[0].qas[0]: the answer is not a text"),
        ("a.jsonl", '{"question": "a?", "answer": ["b"]}\n', ":1: cannot tell which field is the passage"),
        ("a.tsv", "question\tcontext\tanswer\n\tb\tb\n", ":2: the question is empty"),
        ("a.tsv", "question\tcontext\tanswer\na?\t\tb\n", ":2: the passage is empty"),
        ("a.tsv", "question\tcontext\na?\tb\n", ":2: the answer is missing"),
        (
            "a.tsv",
            "question\tcontext\tanswer\tstart\na?\tb\tb\tfirst\n",
            ":2: the answer's start 'first' is not a number",
        ),
    ],
)
def test_invalid_input_is_an_error(tmp_path: Path, name: str, text: str, said: str) -> None:
    assert complaint(put(tmp_path, name, text)).startswith(said)


def test_questions_without_any_answer_are_an_error(tmp_path: Path) -> None:
    file = put(tmp_path, "a.json", squad(asked("why", is_impossible=True)))
    assert complaint(file).startswith(": no question has an answer; give some")
    assert len(read_questions([file], ReadOptions(for_training=False), [])) == 1


def test_broken_lines_of_a_table_can_be_left_out(tmp_path: Path) -> None:
    lines = ["question\tpassage\tanswer", f"When?\t{PASSAGE}\t1843", "broken", f"Where?\t{PASSAGE}\tLondon"]
    file = put(tmp_path, "a.tsv", "\n".join(lines) + "\n")
    assert ":3: " in complaint(file)
    notes: list[str] = []
    assert [one.question for one in read_questions([file], ReadOptions(skip_short=True), notes)] == ["When?", "Where?"]
    assert any("3" in note for note in notes)
