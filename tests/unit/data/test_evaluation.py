"""Evaluation tasks: the forms of their files, the built-in ones, and k-shot prompts."""

import gzip
import json

import pytest

from ensue.core.errors import InputError
from ensue.data.evaluation.catalogue import BUILT_IN, DATA_SETS, find_task
from ensue.data.evaluation.overlap import training_overlap
from ensue.data.evaluation.prompts import ShotDrawer, make_prompts, select
from ensue.data.evaluation.task import EvalTask, Example, PromptStyle

HARNESS = {"doc_id": 0, "doc": {}, "target": "1"}
FORMS = {
    "foundry": ({"query": "Is it?", "choices": ["no", "yes"], "gold": 1}, "choice", ("Is it?",), ("no", "yes"), 1),
    "schema": (
        {"context_options": ["A a", "A b"], "continuation": "c.", "gold": 1},
        "choice", ("A a", "A b"), ("c.", "c."), 1,
    ),
    "cloze": ({"context": "I like", "continuation": "tea"}, "cloze", ("I like",), ("tea",), 0),
    "gpt3": ({"context": "Q: 1+1?\nA:", "completion": " 2"}, "cloze", ("Q: 1+1?\nA:",), (" 2",), 0),
    "answers": (
        {"context": "Capital?", "answer": "Rome", "aliases": ["Roma", "Rome"]},
        "match", ("Capital?",), ("Rome", "Roma"), 0,
    ),
    "question": ({"question": "2+2", "answers": ["4", "four"]}, "match", ("2+2",), ("4", "four"), 0),
    "text": ({"text": "one two"}, "perplexity", ("",), ("one two",), 0),
    "arc": (
        {"question": "Why?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "B"},
        "choice", ("Question: Why?",), ("x", "y"), 1,
    ),
    "ai2": (
        {"question": {"stem": "Why?", "choices": [{"text": t, "label": n} for t, n in ("x1", "y2")]}, "answerKey": "1"},
        "choice", ("Question: Why?",), ("x", "y"), 0,
    ),
    "piqa": (
        {"goal": "Open it", "sol1": "pull", "sol2": "push", "label": 1},
        "choice", ("Question: Open it",), ("pull", "push"), 1,
    ),
    "boolq": (
        {"passage": "It is red.", "question": "is it red", "answer": True},
        "choice", ("It is red.\nQuestion: is it red?",), ("no", "yes"), 1,
    ),
    "hellaswag": (
        {"ctx_a": "He sat.", "ctx_b": "then he", "activity_label": "R", "endings": ["sat.", "[x] ran."], "label": "0"},
        "choice", ("R: He sat. Then he",), ("sat.", " ran."), 0,
    ),
    "winogrande": (
        {"sentence": "The cup fits the bag as the _ is small.", "option1": "cup", "option2": "bag", "answer": "1"},
        "choice", ("The cup fits the bag as the cup", "The cup fits the bag as the bag"), ("is small.", "is small."), 0,
    ),
    "copa": (
        {"premise": "It rained.", "choice1": "He got wet.", "choice2": "He slept.", "question": "effect", "label": 0},
        "choice", ("It rained therefore",), ("he got wet.", "he slept."), 0,
    ),
    "harness": ({**HARNESS, "arguments": [["Q", " a"], ["Q", " b"]]}, "choice", ("Q",), (" a", " b"), 1),
    "harness named": (
        {**HARNESS, "arguments": {f"gen_args_{n}": {"arg_0": c, "arg_1": " a"} for n, c in enumerate("PR")}},
        "choice", ("P", "R"), (" a", " a"), 1,
    ),
    "harness written": (
        {**HARNESS, "target": "7", "arguments": [["3+4=", {"until": ["\n"]}]]},
        "match", ("3+4=",), ("7",), 0,
    ),
}  # fmt: skip


def write(path, *records):
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt", encoding="utf-8") as file:
        file.write("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


@pytest.mark.parametrize("name", FORMS)
def test_each_form_of_a_line_becomes_an_example(name, tmp_path):
    record, kind, contexts, options, gold = FORMS[name]
    task = find_task(write(tmp_path / "mine.jsonl.gz", record, record))
    assert (task.name, task.kind, task.size) == ("mine", kind, 2)
    assert (task.examples[0].contexts, task.examples[0].options, task.examples[0].gold) == (contexts, options, gold)
    assert task.examples[1].where.endswith(":2")


@pytest.mark.parametrize(
    ("record", "what"),
    [
        ({"question": "x"}, "with the fields question is no task"),
        ({"query": "x", "choices": ["a", "b"], "gold": 2}, "right option '2' is none of 2"),
        ({"query": "x", "choices": ["a", "b"], "gold": True}, "right option 'True' is none of 2"),
        ({"query": "x", "choices": ["a"], "gold": 0}, "a single option is no choice"),
        ({"query": "x", "choices": "ab", "gold": 0}, "is not a list of texts"),
        ({"query": 3, "choices": ["a", "b"], "gold": 0}, "'query' is not text"),
        ({"context_options": ["a", "b"], "continuation": ["c"], "gold": 0}, "'continuation' is not text"),
        ({"sentence": "no gap", "option1": "a", "option2": "b", "answer": "1"}, "no _ to fill"),
        ({"question": "x", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "C"}, "of no choice"),
        ({"doc_id": 1, "arguments": []}, "no contexts and continuations"),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_refused_with_its_number(record, what, tmp_path):
    with pytest.raises(InputError, match=what) as error:
        find_task(write(tmp_path / "bad.jsonl", record))
    assert "bad.jsonl:1" in str(error.value)


def test_all_lines_have_the_form_of_the_first(tmp_path):
    file = write(tmp_path / "x.jsonl", FORMS["cloze"][0], {"context": "only"})
    with pytest.raises(InputError, match=r"x\.jsonl:2: there is no field continuation or completion"):
        find_task(file)


def test_the_first_line_may_set_how_prompts_are_made(tmp_path):
    header = {"task": {"kind": "match", "delimiter": "", "stop": [";"], "max_tokens": 3, "description": "Add."}}
    task = find_task(write(tmp_path / "x.jsonl", header, {"context": "1+1=", "continuation": "2"}))
    assert (task.kind, task.size) == ("match", 1)
    assert task.style == PromptStyle(delimiter="", stop=(";",), max_tokens=3, description="Add.")
    for wrong, what in (
        ({"stop": "x"}, "stop should be"),
        ({"delimeter": ""}, "did you mean"),
        ({"kind": "a"}, "unknown kind"),
    ):
        with pytest.raises(InputError, match=what):
            find_task(write(tmp_path / "y.jsonl", {"task": wrong}, FORMS["cloze"][0]))


@pytest.mark.parametrize(
    ("settings", "form", "what"),
    [
        ({"kind": "match"}, "foundry", r"y\.jsonl:2: a line in the form .* is no task of the kind match"),
        ({"kind": "cloze"}, "foundry", "is no task of the kind cloze"),
        ({"kind": "code"}, "foundry", "is no task of the kind code"),
        ({"kind": "match"}, "text", "is no task of the kind match"),
        ({"kind": "choice"}, "cloze", "is no task of the kind choice"),
        ({"measure": "accuracy"}, "foundry", "unknown measure of the kind choice 'accuracy'"),
        ({"kind": "match", "measure": "acc"}, "cloze", "unknown measure of the kind match 'acc'"),
    ],
)
def test_settings_that_do_not_fit_the_lines_are_refused(settings, form, what, tmp_path):
    file = write(tmp_path / "y.jsonl", {"task": settings}, FORMS[form][0])
    with pytest.raises(InputError, match=what):
        find_task(file)


def test_a_data_set_of_programs_has_no_other_lines(tmp_path):
    with pytest.raises(InputError, match="is no task of the kind code"):
        find_task(write(tmp_path / "humaneval.jsonl", {"text": "no program"}))
    problem = {"task_id": 1, "text": "Write one.", "test_list": ["assert one() == 1"]}  # only shots need code
    assert find_task(write(tmp_path / "mbpp.jsonl", problem)).problems == [problem]
    with pytest.raises(InputError, match=r"mbpp\.jsonl:2: the field 'test_list' is not a list"):
        find_task(write(tmp_path / "mbpp.jsonl", problem, {**problem, "task_id": 2, "test_list": 3}))


@pytest.mark.parametrize(
    "record",
    [
        {"query": "a", "choices": ["", "b"], "gold": 0},
        {"context": "a", "continuation": ""},
        {"text": ""},
    ],
)
def test_what_is_scored_is_not_empty(record, tmp_path):
    with pytest.raises(InputError, match=r"z\.jsonl:1: .* is empty"):
        find_task(write(tmp_path / "z.jsonl", record))


def test_logged_answers_end_where_the_log_says(tmp_path):
    ending = {"until": ["Q:", "</s>"], "max_gen_toks": 256, "do_sample": False}
    task = find_task(write(tmp_path / "log.jsonl", {**HARNESS, "target": "7", "arguments": [["3+4=", ending]]}))
    assert (task.kind, task.style.stop, task.style.max_tokens) == ("match", ("Q:", "</s>"), 256)


def test_known_data_is_found_in_a_folder_or_named_as_a_file(tmp_path, monkeypatch):
    record = {"query": "Question: why?", "choices": ["a", "b"], "gold": 0}
    file = write(tmp_path / "ARC_easy-test.jsonl.gz", record)
    by_folder, by_file, by_path = find_task("arc-easy", tmp_path), find_task("arc-easy", file), find_task(file)
    assert by_folder == by_file == by_path
    assert by_folder.style.suffix == "\nAnswer:"
    monkeypatch.setenv("ENSUE_EVAL_DATA", str(tmp_path))
    assert find_task("arc-easy") == by_folder
    with pytest.raises(InputError, match=r"there is no file of piqa; put a JSONL file with lines \{query"):
        find_task("piqa")
    monkeypatch.delenv("ENSUE_EVAL_DATA")
    with pytest.raises(InputError, match=r"piqa needs its data; add --data .* from baber/piqa"):
        find_task("piqa")
    with pytest.raises(InputError, match="did you mean 'piqa'"):
        find_task("pqa")
    assert find_task(write(tmp_path / "lambada.jsonl", {"text": "I drink tea"})).examples[0].options == ("tea",)


def test_programs_are_recognised_and_kept_as_records(tmp_path):
    human = {"task_id": "HumanEval/0", "prompt": "def f():", "entry_point": "f", "test": "", "canonical_solution": ""}
    mbpp = {"text": "Add.", "code": "", "test_list": ["assert True"], "task_id": 1}
    for record in (human, mbpp):
        task = find_task(write(tmp_path / "code.jsonl", record))
        assert task.kind == "code" and task.size == 1 and task.problems == [record]


@pytest.mark.parametrize("name", sorted(set(BUILT_IN) - {"code"}))
def test_built_in_tasks_are_the_same_every_time_and_have_no_question_twice(name):
    task, again = find_task(name), find_task(name)
    assert task == again and task.kind == "match"
    contexts = [example.context for example in task.examples]
    assert len(contexts) == len(set(contexts)) >= 60
    assert all(answer.strip() == answer and answer for example in task.examples for answer in example.options)
    assert len({example.group for example in task.examples}) > 1


def test_generated_answers_are_right():
    signs = {"plus": "+", "minus": "-", "times": "*"}
    for example in find_task("arithmetic").examples:
        a, sign, b = example.context.removeprefix("Q: What is ").removesuffix("?\nA:").split()
        assert example.answer == str(eval(f"{a}{signs[sign]}{b}"))
    for example in find_task("unscrambling").examples:
        letters = example.context.split("\n")[0].removeprefix("Letters: ")
        assert letters != example.answer and sorted(letters) == sorted(example.answer)
    for example in find_task("copying").examples:
        assert example.context == f"Input: {example.answer}\nOutput:"


def make_task(count=6, **style):
    examples = [Example((f"Question: {n}?",), (f"no {n}", f"yes {n}"), n % 2) for n in range(count)]
    return EvalTask(name="t", kind="choice", examples=examples, style=PromptStyle(**style))


def test_a_prompt_is_description_shots_and_question():
    task = make_task(suffix="\nAnswer:", description="Decide.")
    drawer = ShotDrawer(task.examples, 2, seed=0)
    (prompt,) = make_prompts(task, drawer, [3])
    a, b = (task.examples[number] for number in prompt.shots)
    assert prompt.contexts == (
        f"Decide.\n\n{a.context}\nAnswer: {a.answer}\n\n{b.context}\nAnswer: {b.answer}\n\nQuestion: 3?\nAnswer:",
    )
    assert prompt.options == (" no 3", " yes 3")


def test_no_question_is_among_its_own_shots_and_all_others_share_them():
    task = make_task(20)
    drawn = [ShotDrawer(task.examples, 4, seed=1).draw(one, n) for n, one in enumerate(task.examples)]
    assert all(n not in shots and len(set(shots)) == 4 for n, shots in enumerate(drawn))
    usual = max(set(drawn), key=drawn.count)
    assert drawn.count(usual) == 16 and all(n in usual for n, shots in enumerate(drawn) if shots != usual)
    fewer = ShotDrawer(task.examples, 2, seed=1).draw(task.examples[0], 0)
    assert drawn[0][:2] == fewer
    each = [ShotDrawer(task.examples, 4, 1, each=True).draw(one, n) for n, one in enumerate(task.examples)]
    assert len(set(each)) > 15 and all(n not in shots for n, shots in enumerate(each))
    assert each == [ShotDrawer(task.examples, 4, 1, each=True).draw(one, n) for n, one in enumerate(task.examples)]


def test_shots_with_the_same_text_as_the_question_are_left_out():
    twice = [Example(("same",), ("a",)), Example(("same",), ("a",)), Example(("other",), ("b",))]
    assert ShotDrawer(twice, 1, 0).draw(twice[0], 0) == (2,)
    with pytest.raises(InputError, match="1 other example to draw 2 shots from"):
        ShotDrawer(twice, 2, 0).draw(twice[0], 0)


def test_a_limit_draws_questions_at_random_and_a_larger_one_includes_them():
    few, more = select(1000, 10, 3), select(1000, 50, 3)
    assert few == sorted(few) and set(few) <= set(more) and few != list(range(10))
    assert select(5, 0, 3) == [0, 1, 2, 3, 4] == select(5, 99, 1)
    assert select(1000, 10, 4) != few


def test_questions_that_the_training_text_holds_are_counted(tmp_path):
    text = tmp_path / "train.txt"
    text.write_text("Before. The old man sat by the river and fished\nuntil the sun went down, then he left.", "utf-8")
    seen = Example(("the old man sat by the river and fished until the sun",), ("went down",))
    unseen = Example(("the young man sat by the river and fished until the moon",), ("went down",))
    assert training_overlap([str(text)], {"a": [seen, unseen], "b": [unseen]}) == {"a": 1, "b": 0}
    assert training_overlap([str(tmp_path / "gone.txt")], {"a": [seen]}) is None
    assert training_overlap([], {"a": [seen]}) is None


def test_every_known_data_set_says_its_form_and_where_it_comes_from():
    for name, one in DATA_SETS.items():
        assert one.form.startswith("{") and one.get and all(stem.isalnum() for stem in one.stems), name
