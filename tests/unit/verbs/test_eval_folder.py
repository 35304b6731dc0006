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
