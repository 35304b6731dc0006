"""An evaluation that is killed at a question continues there, with the results of one that was not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typed import ensue

from ensue.measure.sandbox.execution import missing_protections
from ensue.verbs import eval_task
from ensue.verbs.eval_answers import SavedAnswers

TASKS = {
    "choice": {"query": "the students opened {n}", "choices": ["their books", "the rain", "clock"], "gold": 1},
    "cloze": {"context": "the proctor started {n}", "continuation": "the clock"},
    "match": {"question": "the rain fell on {n}", "answers": ["the", "clock"]},
    "perplexity": {"text": "the students opened their books {n}"},
}
KILLED = """
import os, signal, sys
from ensue.verbs import eval_task
from ensue.verbs.eval_answers import SavedAnswers
eval_task.BATCH, before, count = 2, SavedAnswers.add, [0]
at, number = map(int, sys.argv[1:3])
def add(self, questions, records):
    count[0] += 1
    if count[0] == at:
        os.kill(os.getpid(), number)
    before(self, questions, records)
SavedAnswers.add = add
del sys.argv[1:3]
from ensue.cli.main import main
main()
"""


def write_task(kind):
    lines = [{key: _numbered(value, n) for key, value in TASKS[kind].items()} for n in range(7)]
    Path(f"{kind}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return f"{kind}.jsonl"


def _numbered(value, number):
    return value.format(n="the old stone bridge " * (number % 3) + str(number)) if isinstance(value, str) else value


def results(folder):
    """The results without what was timed, and all records."""
    held = json.loads(Path(folder, "eval.json").read_text())["results"]
    kept = [{key: one[key] for key in one if key not in ("seconds", "examples_per_second")} for one in held]
    return kept, [Path(folder, one["records"]).read_text() for one in held]


def partials(folder):
    return sorted(path.name for path in Path(folder).glob("*.partial.jsonl"))


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(eval_task, "BATCH", 2)


@pytest.mark.parametrize("kind", TASKS)
@pytest.mark.parametrize("at", [1, 3, 6])
def test_ctrl_c_at_a_question_and_resume(kind, at, runs, monkeypatch):
    shots = "0" if kind == "perplexity" else "0,1"
    words = ("eval", runs / "gpt", write_task(kind), "--shots", shots)
    assert ensue(*words, "--out", "whole").code == 0
    asked, before = [], SavedAnswers.add

    def add(self, questions, records):
        if len(asked) + 1 == at:
            raise KeyboardInterrupt
        asked.extend([questions])
        before(self, questions, records)

    if kind == "perplexity" and at == 6:
        return  # it has four batches
    monkeypatch.setattr(SavedAnswers, "add", add)
    stopped = ensue(*words, "--out", "kept", "--force")
    assert stopped.code == 130 and stopped.err.strip().count("\n") == 0
    again = f"ensue eval {runs / 'gpt'} {kind}.jsonl --shots {shots} --out kept --resume"
    assert "saved in kept; continue with: " + again in stopped.err, stopped.err
    first, at = list(asked), 100
    answer = ensue(*words, "--out", "kept", "--resume")
    assert answer.code == 0, answer.err
    everything = 4 if kind == "perplexity" else 8
    assert len(asked) == everything and asked[: len(first)] == first  # no question was asked twice
    assert results("kept") == results("whole") and not partials("kept")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_process_loses_no_answer(number, runs):
    words = ["eval", str(runs / "gpt"), write_task("choice"), "--shots", "0,1", "--out"]
    assert ensue(*words, "whole").code == 0
    command = [sys.executable, "-c", KILLED, "7", str(int(number)), *words, "kept"]
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    assert ended.returncode == (-9 if number == signal.SIGKILL else 130), ended.stderr
    assert len(json.loads(Path("kept/eval.json").read_text())["results"]) == 1
    (partial,) = partials("kept")
    assert len(Path("kept", partial).read_text().splitlines()) == 3 and partial == "gpt-choice-1.partial.jsonl"
    if number == signal.SIGTERM:
        assert "1 result of 2 and 4 answers of the next are saved in kept; continue with: ensue eval" in ended.stderr
    assert ensue(*words, "kept").code == 0  # the same command does what --resume does
    assert results("kept") == results("whole") and not partials("kept")


@pytest.mark.skipif(bool(missing_protections()), reason="; ".join(missing_protections()))
def test_programs_that_have_run_are_not_written_again(runs):
    words = ["eval", str(runs / "gpt"), "code", "--execute", "--limit", "4", "--num-samples", "2", "--out"]
    assert ensue(*words, "whole").code == 0
    command = [sys.executable, "-c", KILLED, "4", "9", *words, "kept"]
    subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    assert 2 <= len(Path("kept/gpt-code-0.partial.jsonl").read_text().splitlines()) <= 4  # two threads run programs
    assert ensue(*words, "kept", "--resume").code == 0

    def plain(folder):
        kept, records = results(folder)
        return kept, [{**json.loads(line), "seconds": 0} for text in records for line in text.splitlines()]

    assert plain("kept") == plain("whole") and len(plain("kept")[1]) == 8


def test_what_cannot_be_continued_is_refused_in_one_line(runs):
    words = ("eval", runs / "ngram", write_task("choice"))

    def refused(*more):
        answer = ensue(*words, *more)
        assert answer.code == 2 and answer.err.count("\n") == 1, answer.err
        return answer.err

    assert "there is no evaluation to continue; leave out --resume" in refused("--out", "kept", "--resume")
    assert "--resume needs the folder" in refused("--resume")
    assert ensue(*words, "--out", "kept").code == 0
    assert "--force replaces it" in refused("--out", "kept", "--resume", "--force")
    damaged = Path("kept/ngram-cloze-0.partial.jsonl")
    damaged.write_text("{}\n")
    words = ("eval", runs / "ngram", write_task("cloze"), "--limit", 4)
    assert "line 1 is damaged: not an answer; delete it to ask" in refused("--out", "kept")
    assert ensue(*words, "--out", "kept", "--force").code == 0 and not partials("kept")
    held = json.loads(Path("kept/eval.json").read_text())
    del held["results"][0]["figures"]["acc"]["error"]
    Path("kept/eval.json").write_text(json.dumps(held))
    assert "eval.json: is damaged: not an evaluation" in refused("--out", "kept")
