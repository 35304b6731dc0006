"""Labelled examples as pairs of texts, mixtures of tasks, and which files hold pairs."""

import json

import numpy as np
import pytest

from ensue.core.errors import InputError
from ensue.data.pair_batches import PairBatches
from ensue.data.pair_files import are_parallel, hold_pairs, split_tasks
from ensue.data.pair_tokens import encode_pairs
from ensue.data.pairs import Pairs, join_tasks
from ensue.data.posed import POSES, TaskForm, read_task, task_forms
from ensue.data.tokenizers.char import ByteTokenizer

FILES = {
    "classify": ("a.tsv", "good film\t1\nbad film\t0\n", [("good film", "positive"), ("bad film", "0")]),
    "pair": ("a.tsv", "one\ttwo\tyes\nthree\tfour\tno\n", [("sentence1: one sentence2: two", "yes")]),
    "regress": ("a.tsv", "one is here\ttwo is there\t3.84\na\tb\t0\n", [(None, "3.8"), (None, "0.0")]),
    "choose": (
        "a.jsonl",
        json.dumps({"context": "It rains.", "endings": ["I swim.", "I am wet."], "label": 1}),
        [("choice1: I swim. choice2: I am wet. context: It rains.", "2")],
    ),
    "tag": (
        "a.conll",
        "Anna B-PER\nsmiles O\n\nBonn B-LOC\nis O\n",
        [("Anna smiles", "B-PER O"), ("Bonn is", "B-LOC O")],
    ),
    "answer": (
        "a.jsonl",
        json.dumps({"question": "Who?", "context": "Anna did.", "answers": {"text": ["Anna"], "answer_start": [0]}}),
        [("question: Who? context: Anna did.", "Anna")],
    ),
}


@pytest.mark.parametrize("pose", FILES)
def test_examples_of_every_task_become_pairs(tmp_path, pose):
    name, text, wanted = FILES[pose]
    file = tmp_path / name
    file.write_text(text)
    form = TaskForm("do it: ", pose, {"1": "positive"} if pose == "classify" else {})
    pairs = read_task([file], form, {}, "", [])
    for (source, target), own in zip(wanted, zip(pairs.source, pairs.target)):
        assert own[1] == target and (source is None or own[0] == f"do it: {source}")
    assert {*FILES} == {*POSES}


def test_a_prefix_is_put_before_a_text_once():
    form = TaskForm("sst2 sentence: ")
    assert form.source("fine") == form.source("sst2 sentence: fine") == "sst2 sentence: fine"


def test_settings_are_for_all_files_or_for_each():
    forms = task_forms(2, ["a: ", "-"], ["classify"], ["0=no"])
    assert [(form.prefix, form.pose) for form in forms] == [("a: ", "classify"), ("", "classify")]
    for prefixes, poses, labels, message in (
        (["a", "b", "c"], [], [], "data.prefix has 3 values"),
        ([], ["sing"], [], "sing"),
        ([], [], ["0"], "label=name"),
        ([], [], ["0=a", "0=b"], "twice"),
    ):
        with pytest.raises(InputError, match=message):
            task_forms(2, prefixes, poses, labels)


def test_pairs_of_several_tasks_are_mixed_up_to_a_limit():
    parts = [
        Pairs([f"{name} {n}" for n in range(count)], ["x"] * count, [*range(count)], name)
        for name, count in (("a", 40), ("b", 5))
    ]
    tokenizer = ByteTokenizer()
    tokens = encode_pairs(join_tasks(parts), tokenizer, tokenizer, most=99)
    batches = PairBatches(tokens, 60, tokenizer.end, limit=10)

    def epoch(number):
        rows = np.concatenate(batches._plan.epoch(number))
        return [tokenizer.decode(tokens.pair(row)[0]) for row in rows]

    first, second = epoch(0), epoch(1)
    assert sorted(line[0] for line in first) == ["a"] * 10 + ["b"] * 5
    assert {*first} != {*second} and len({*first}) == 15


def test_which_files_hold_pairs(tmp_path):
    text, pairs = tmp_path / "t.jsonl", tmp_path / "p.jsonl"
    text.write_text('{"text": "one"}\n')
    pairs.write_text('{"source": "one", "target": "two"}\n')
    assert hold_pairs([str(pairs)]) and not hold_pairs([str(text)])
    assert hold_pairs(["a.tsv.gz"]) and hold_pairs(["a.tsv", "b.csv"]) and hold_pairs(["x.en", "x.de"])
    assert not hold_pairs(["a.txt"]) and not hold_pairs(["a.txt", "b.txt"]) and not hold_pairs(["-"])
    assert not are_parallel(["x.en", "y.de"])
    assert split_tasks(["a.tsv", "b.tsv"]) == [["a.tsv"], ["b.tsv"]] and split_tasks(["x.en", "x.de"]) == [
        ["x.en", "x.de"]
    ]
