"""The folder of an evaluation: one process at a time writes to it, and none loses what another one added."""

import errno

import pytest

from ensue.core.errors import InputError
from ensue.core.files import read_json
from ensue.core.run_folder import LOCKS
from ensue.verbs.eval_folder import RESULTS, EvalFolder

FACTS = {"runs": [{"run": "a"}], "notes": []}
FIGURES = {"acc": {"value": 0.5, "error": 0.1}}
RESULT = {"run": "a", "shots": 0, "kind": "choice", "measure": "acc", "settings": {}, "figures": FIGURES}
RESULT |= {"examples": 2, "examples_per_second": 1.0}


def add(folder, task):
    folder.add({**RESULT, "task": task}, [{"index": 0}], several=False)
    folder.write(FACTS, chart=False)


def tasks(path):
    return [one["task"] for one in read_json(path / RESULTS)["results"]]


@pytest.mark.skipif(LOCKS is None, reason="no file locks on this system")
@pytest.mark.parametrize("force", [False, True])
def test_two_evaluations_do_not_write_to_one_folder(tmp_path, force):
    path = tmp_path / "e"
    with EvalFolder(path).made(FACTS):
        other = EvalFolder(path, force=force)
        with pytest.raises(InputError, match=r"e: another process is evaluating here; wait for it"), other.made(FACTS):
            pass
    with other.made(FACTS):
        add(other, "mine")
    assert tasks(path) == ["mine"]


@pytest.mark.skipif(LOCKS is None, reason="no file locks on this system")
def test_a_file_system_without_locks_is_used_all_the_same(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(LOCKS, "flock", refuse)
    folder = EvalFolder(tmp_path / "e")
    with folder.made(FACTS):
        add(folder, "mine")
    assert tasks(tmp_path / "e") == ["mine"]


def test_results_that_another_process_added_meanwhile_are_kept(tmp_path):
    first, second = EvalFolder(tmp_path / "e"), EvalFolder(tmp_path / "e")
    for folder, task in ((first, "one"), (second, "two")):
        with folder.made(FACTS):
            add(folder, task)
    assert tasks(tmp_path / "e") == ["one", "two"]


def settings(**changed):
    return {"digest": "d", "questions": "q", **changed}


@pytest.mark.parametrize(
    ("work", "what"),
    [
        ([("my run", "t", 0), ("my-run", "t", 0)], r"t of my run \(0 shots\) and t of my-run \(0 shots\) would have"),
        ([("a/mine", "t", 0), ("a-mine", "t", 0)], "t of a/mine .* and t of a-mine"),
        ([("a", "my task", 1), ("a", "my-task", 1)], "my task of a .* and my-task of a"),
        ([("Run", "t", 0), ("run", "t", 0)], "t of Run .* and t of run"),  # one folder where case does not count
        ([("a", "b-c", 0), ("a-b", "c", 0)], "b-c of a .* and c of a-b"),  # one file of unfinished answers
        ([("eval.json", "t", 0), ("b", "t", 0)], "the evaluation itself and t of eval.json"),
        ([("..", "t", 0), ("task", "t", 0)], "t of .. .* and t of task"),
    ],
)
def test_results_that_would_have_the_same_name_are_refused(tmp_path, work, what):
    folder = EvalFolder(tmp_path / "e")
    given = [(*one, settings(digest=one[0])) for one in work]
    with pytest.raises(InputError, match=what) as error:
        folder.check_names(given)
    assert "\n" not in str(error.value) and not (tmp_path / "e").exists()
    EvalFolder(None).check_names(given)  # nothing is written
    for one in given:
        folder.check_names([one] if one[0] != "eval.json" else [])


def test_names_of_results_that_are_there_are_not_used_again(tmp_path):
    folder = EvalFolder(tmp_path / "e")
    with folder.made(FACTS):
        folder.add({**RESULT, "task": "my task", "settings": settings()}, [{"index": 0}], several=False)
        folder.write(FACTS, chart=False)
    again = EvalFolder(tmp_path / "e")
    again.check_names([("a", "my task", 0, settings()), ("a", "my task", 1, settings()), ("b", "t", 0, settings())])
    with pytest.raises(InputError, match=r"e: my task of a \(0 shots\) and my-task of a \(0 shots\) would have"):
        again.check_names([("a", "my-task", 0, settings())])
    with pytest.raises(InputError, match="e: holds results of another model that is named a; choose another --out"):
        again.check_names([("a", "other", 0, settings(digest="another"))])
    EvalFolder(tmp_path / "e", force=True).check_names([("a", "my-task", 0, settings())])


def test_a_task_may_be_named_twice(tmp_path):
    folder = EvalFolder(tmp_path / "e")
    folder.check_names([("a", "t", 0, settings()), ("a", "t", 0, settings())])
