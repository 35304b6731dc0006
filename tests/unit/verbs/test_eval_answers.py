"""Answers of an unfinished evaluation are kept line by line, and read again exactly."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from ensue.core.errors import InputError
from ensue.verbs.eval_answers import SavedAnswers

SETTINGS = {"task": "mine", "limit": 4, "questions": "abc"}


@pytest.fixture
def path(tmp_path):
    saved = SavedAnswers(tmp_path / "a.partial.jsonl", SETTINGS)
    saved.add([3, 1], [{"index": 3, "log_probs": [-1 / 3, float("-inf")]}, {"index": 1, "answer": "é\u2028\n"}])
    saved.add([2], [{"index": 2}])
    return saved.path


def test_answers_are_read_again_exactly(path):
    saved = SavedAnswers(path, SETTINGS)
    assert len(saved) == 3 and saved.seconds > 0
    assert saved.get([3, 1])[0]["log_probs"] == [-1 / 3, float("-inf")] and saved.get((2,)) == [{"index": 2}]
    assert saved.get([3, 1])[1]["answer"] == "é\u2028\n" and saved.get([1, 3]) is None
    saved.remove()
    assert not path.exists() and not len(SavedAnswers(path, SETTINGS))


def test_a_line_cut_anywhere_is_dropped_and_written_again(path):
    """As kill -9 leaves it at any byte of the last line."""
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    for size in range(len(lines[0] + lines[1]), len(whole)):
        path.write_bytes(whole[:size])
        saved = SavedAnswers(path, SETTINGS)
        assert len(saved) == 2 and saved.get([2]) is None
        saved.add([2], [{"index": 2}])
        assert len(path.read_bytes().splitlines()) == 3 and SavedAnswers(path, SETTINGS).get([2]) == [{"index": 2}]
    for size in range(len(lines[0])):
        path.write_bytes(whole[:size])
        saved = SavedAnswers(path, SETTINGS)
        saved.add([5], [{"index": 5}])
        assert len(SavedAnswers(path, SETTINGS)) == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: [lines[0], b"{]", lines[2]],
        lambda lines: [lines[0], lines[1].replace(b"-0.333", b"-0.334"), lines[2]],
        lambda lines: [lines[0], lines[1].replace(b'"index": 1', b'"index": 4'), lines[2]],
        lambda lines: [lines[0], b"\x00" * 40, lines[2]],
        lambda lines: [lines[0], b"[1, 2]", lines[2]],
        lambda lines: lines[1:],
        lambda lines: [b"", *lines],
    ],
)
def test_other_damage_is_refused_in_one_line(damage, path):
    path.write_bytes(b"".join(line + b"\n" for line in damage(path.read_bytes().splitlines())))
    with pytest.raises(
        InputError, match=r"partial.jsonl: line \d is damaged: not an answer; delete it to ask"
    ) as error:
        SavedAnswers(path, SETTINGS)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"limit": 5}, "holds answers for limit 4, not 5"),
        ({"questions": "x"}, "other questions: its file has changed"),
        ({"temperature": 0.5}, "temperature None, not 0.5"),
    ],
)
def test_answers_to_other_questions_are_refused(changed, what, path):
    with pytest.raises(InputError, match=what):
        SavedAnswers(path, {**SETTINGS, **changed})


def test_several_threads_add_whole_lines(tmp_path):
    saved = SavedAnswers(tmp_path / "a.partial.jsonl", SETTINGS)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: saved.add([n, 0], [{"text": str(n) * 5000}]), range(60)))
    assert json.loads(saved.path.read_text().splitlines()[0]) == {"settings": SETTINGS}
    again = SavedAnswers(saved.path, SETTINGS)
    assert all(again.get([n, 0]) == [{"text": str(n) * 5000}] for n in range(60))
