"""`ensue eval` as people type it: tasks, shots, folders, errors."""

import json
import shutil
from pathlib import Path

import pytest
from typed import ensue

import ensue as library
from ensue.measure.sandbox.execution import missing_protections
from ensue.verbs import code_evaluation
from ensue.verbs import eval as module
from ensue.verbs.convert import convert

QUESTIONS = [
    {"query": f"the students opened {n}", "choices": ["their books", "the rain", "clock"], "gold": n % 3}
    for n in range(8)
]


@pytest.fixture
def choices(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in QUESTIONS), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def chat(chat_file, tmp_path_factory):
    return convert(chat_file, out=tmp_path_factory.mktemp("converted") / "chat")


def test_without_a_run_the_tasks_are_listed():
    listed = ensue("eval")
    assert listed.code == 0 and "arithmetic" in listed.out and "context|question|prompt" in listed.out
    assert "hellaswag" in ensue("eval", "--json").json["data_sets"]


def test_a_file_is_evaluated_and_everything_is_kept(runs, choices):
    answer = ensue("eval", runs / "gpt", f"{choices},trivia", "--shots", "0,2", "--limit", 5, "--out", "kept", "--json")
    assert answer.code == 0, answer.err
    results = answer.json["results"]
    assert [(one["task"], one["shots"], one["examples"]) for one in results] == [
        (task, shots, 5) for task in ("mine", "trivia") for shots in (0, 2)
    ]
    assert results[0]["chance"] == pytest.approx(1 / 3) and results[0]["measure"] == "acc"
    assert results[0]["cut"] == results[1]["cut"] == 5  # the context of this model has 16 tokens
    assert json.loads(Path("kept/eval.json").read_text())["results"] == results
    lines = [json.loads(line) for line in Path("kept/mine-2.jsonl").read_text().splitlines()]
    assert len(lines) == 5
    for line in lines:
        assert line["prompt"].count("\n\n") == 2 and line["prompt"].endswith(QUESTIONS[line["index"]]["query"])
        assert line["index"] not in line["shots"] and len(line["log_probs"]) == len(line["unconditional"]) == 3
        best = max(range(3), key=lambda n: line["log_probs"][n])
        assert line["chosen"]["acc"] == best and line["right"]["acc"] == (best == line["gold"])
    accuracy = sum(line["right"]["acc"] for line in lines) / 5
    assert results[1]["figures"]["acc"]["value"] == pytest.approx(accuracy)
    written = [json.loads(line) for line in Path("kept/trivia-0.jsonl").read_text().splitlines()]
    assert all(isinstance(line["answer"], str) for line in written)
    assert (
        Path("kept/eval.svg").read_text().startswith("<svg") and "Score against" in Path("kept/eval.html").read_text()
    )


def test_the_same_command_continues_and_other_settings_are_refused(runs, choices, monkeypatch):
    words = ("eval", runs / "gpt", choices, "--shots", "0,1", "--limit", 4, "--out", "kept")
    asked, before = [], module.ask
    monkeypatch.setattr(module, "ask", lambda *given: (asked.append(given[1].name), before(*given))[1])

    def stopped(*given):
        if asked:
            raise KeyboardInterrupt
        return (asked.append(given[1].name), before(*given))[1]

    monkeypatch.setattr(module, "ask", stopped)
    interrupted = ensue(*words)
    assert interrupted.code == 130 and "1 result of 2 are saved in kept" in interrupted.err
    monkeypatch.setattr(module, "ask", lambda *given: (asked.append(given[1].name), before(*given))[1])
    first = json.loads(Path("kept/eval.json").read_text())["results"]
    assert ensue(*words).code == 0
    assert asked == ["mine", "mine"]  # the first was not asked again
    results = json.loads(Path("kept/eval.json").read_text())["results"]
    assert results[:1] == first and len(results) == 2
    refused = ensue(*words[:-3], 5, "--out", "kept")
    assert refused.code == 2 and "holds mine with 0 shots for limit 4, not 5" in refused.err
    assert json.loads(Path("kept/eval.json").read_text())["results"] == results
    asked.clear()
    refused = ensue("eval", runs / "gpt", f"trivia,{choices}", "--limit", 5, "--out", "kept")
    assert refused.code == 2 and "for limit 4, not 5" in refused.err and not asked  # before anything is asked
    assert ensue("eval", runs / "lstm", choices, "--limit", 4, "--out", "kept").code == 0  # another run is added
    held = json.loads(Path("kept/eval.json").read_text())
    assert [one["run"] for one in held["runs"]] == ["gpt", "lstm"]
    assert [one["records"] for one in held["results"]] == ["mine-0.jsonl", "mine-1.jsonl", "lstm/mine-0.jsonl"]
    assert ensue(*words[:-3], 5, "--out", "kept", "--force").code == 0


def test_results_of_a_file_that_has_changed_are_refused(runs, choices):
    words = ("eval", runs / "ngram", choices, "--limit", 4, "--out", "kept")
    assert ensue(*words).code == 0
    choices.write_text(choices.read_text().replace("their books", "a book"), encoding="utf-8")
    refused = ensue(*words)
    assert refused.code == 2 and "holds mine with 0 shots for other questions: its file has changed" in refused.err


def test_an_interrupted_evaluation_counts_its_own_results(runs, choices, monkeypatch):
    assert ensue("eval", runs / "ngram", "trivia", "--shots", "0,1", "--limit", 2, "--out", "kept").code == 0

    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "ask", stopped)
    interrupted = ensue("eval", runs / "ngram", choices, "--out", "kept")
    assert interrupted.code == 130 and "0 results of 1 are saved in kept" in interrupted.err


def test_what_cannot_be_evaluated_is_refused_before_anything_is_asked(runs, choices, monkeypatch):
    monkeypatch.setattr(module, "ask", lambda *_: pytest.fail("a question is asked"))
    shots = ensue("eval", runs / "ngram", f"trivia,{choices}", "--shots", "1,20")
    assert shots.code == 2 and "7 other examples to draw 20 shots from" in shots.err
    out = ensue("eval", runs / "ngram", "trivia", "--out", choices / "kept")
    assert out.code == 2 and "a part of this path is a file, not a folder" in out.err
    chat = ensue("eval", runs / "ngram", "trivia", "--chat")
    assert chat.code == 2 and "has no chat template" in chat.err


def test_results_that_would_share_a_name_are_refused_before_anything_is_asked(runs, choices, monkeypatch):
    monkeypatch.setattr(module, "ask", lambda *_: pytest.fail("a question is asked"))
    Path("b").mkdir()
    shutil.copy(choices, "b/mine.jsonl")
    tasks = ensue("eval", runs / "ngram", f"{choices},b/mine.jsonl", "--out", "kept")
    assert tasks.code == 2 and "there are two tasks mine" in tasks.err
    for name in ("my run", "my-run", "a/one", "b/one"):
        shutil.copytree(runs / "ngram", name)
    named = ensue("eval", "my run,my-run", choices, "--out", "kept")
    assert named.code == 2 and "mine of my run (0 shots) and mine of my-run (0 shots) would have" in named.err
    assert not Path("kept").exists()


def test_runs_in_two_folders_with_the_same_last_part_have_results_of_their_own(runs, choices):
    for name, run in (("a/one", "ngram"), ("b/one", "lstm")):
        shutil.copytree(runs / run, name)
    assert ensue("eval", "a/one,b/one", choices, "--limit", 3, "--out", "kept").code == 0
    held = json.loads(Path("kept/eval.json").read_text())["results"]
    assert [(one["run"], one["records"]) for one in held] == [
        ("a/one", "a-one/mine-0.jsonl"),
        ("b/one", "b-one/mine-0.jsonl"),
    ]
    assert ensue("eval", "a/one", choices, "--limit", 3, "--out", "single").code == 0
    other = ensue("eval", "b/one", "trivia", "--limit", 3, "--out", "single")
    assert other.code == 2 and "holds results of another model that is named one" in other.err


def test_several_runs_answer_the_same_questions(runs, choices):
    answer = ensue("eval", f"{runs / 'gpt'},{runs / 'lstm'},{runs / 'ngram'}", choices, "--limit", 3, "--out", "kept")
    assert answer.code == 0, answer.err
    assert [line.split()[0] for line in answer.out.splitlines()[2:5]] == ["gpt", "lstm", "ngram"]
    asked = [
        [json.loads(line)["prompt"] for line in Path(f"kept/{name}/mine-0.jsonl").read_text().splitlines()]
        for name in ("gpt", "lstm", "ngram")
    ]
    assert asked[0] == asked[1] == asked[2]
    assert "words in a row with its training text: none" in answer.err


def test_perplexity_is_that_of_score(runs):
    text = "the students opened their books"
    Path("texts.jsonl").write_text(json.dumps({"text": text}) + "\n", encoding="utf-8")
    (result,) = ensue("eval", runs / "lstm", "texts.jsonl", "--json").json["results"]
    log_p = sum(value for _, value in library.load(runs / "lstm").per_token(text=text)[:-1])
    bits = -log_p / len(text) / 0.6931471805599453
    assert result["figures"]["bits_per_byte"]["value"] == pytest.approx(bits, abs=1e-4)


def test_the_python_function_is_the_command(runs, choices):
    result = library.eval(runs / "gpt", str(choices), shots=[0], limit=3, seed=4)
    typed = ensue("eval", runs / "gpt", choices, "--limit", 3, "--seed", 4, "--json").json
    assert result["results"][0]["figures"] == typed["results"][0]["figures"]


def test_chat_puts_prompts_into_the_template(chat, choices):
    answer = ensue("eval", chat, choices, "--chat", "--limit", 2, "--out", "kept", "--json")
    assert answer.code == 0, answer.err
    plain = ensue("eval", chat, choices, "--limit", 2, "--json").json["results"][0]
    assert answer.json["results"][0]["figures"] is not None
    assert answer.json["results"][0]["settings"]["chat"] and not plain["settings"]["chat"]
    line = json.loads(Path("kept/mine-0.jsonl").read_text().splitlines()[0])
    from ensue.runs.prompts import Prompter, Question

    run = library.load(chat)
    (expected,) = Prompter(run, chat=True).log_probs([Question(line["prompt"], line["options"][0])])
    tokens = [*Prompter(run, chat=True).context(line["prompt"])]
    assert run.tokenizer.named["<|start|>"] in tokens
    assert line["log_probs"][0] == pytest.approx(expected.log_prob, abs=1e-4)


@pytest.mark.skipif(bool(missing_protections()), reason="; ".join(missing_protections()))
def test_programs_are_run_in_the_sandbox(runs):
    answer = ensue("eval", runs / "gpt", "code", "--execute", "--limit", 2, "--shots", "0,3", "--out", "kept", "--json")
    assert answer.code == 0, answer.err
    (result,) = answer.json["results"]  # programs to continue have no shots
    assert (result["kind"], result["shots"], result["measure"], result["examples"]) == ("code", 0, "pass@1", 2)
    assert sum(result["outcomes"].values()) == 2 and 0 <= result["figures"]["pass@1"]["value"] <= 1
    lines = [json.loads(line) for line in Path("kept/code-0.jsonl").read_text().splitlines()]
    assert [line["outcome"] in result["outcomes"] for line in lines] == [True, True]
    shown = ensue("eval", runs / "gpt", "code", "--execute", "--limit", 2, "--out", "kept")
    assert "\ncode, 0 shots: " in shown.out and "; exceptions: " in shown.out
    assert all(f"{line['outcome']} " in shown.out for line in lines)


@pytest.mark.skipif(bool(missing_protections()), reason="; ".join(missing_protections()))
def test_programs_are_asked_for_in_the_chat_template(chat, monkeypatch):
    asked, before = [], code_evaluation.complete
    monkeypatch.setattr(code_evaluation, "complete", lambda *given, **how: (asked.append(given), before(*given, **how)))
    words = ("eval", chat, "code", "--execute", "--limit", 2, "--chat", "--samples", 2, "--temperature", 0.7)
    answer = ensue(*words, "--out", "kept", "--json")
    assert answer.code == 0, answer.err
    run, (_, prompts, how) = library.load(chat), asked[0]
    assert (how.temperature, how.n) == (0.7, 2) and len(prompts) == 2
    assert all(run.tokenizer.named["<|start|>"] in prompt for prompt in prompts)
    (result,) = answer.json["results"]
    assert result["settings"]["chat"] and result["settings"]["temperature"] == 0.7
    assert set(result["figures"]) == {"pass@1", "pass@2"}
    line = json.loads(Path("kept/code-0.jsonl").read_text().splitlines()[0])
    assert line["program"].endswith("\n" + line["completion"])  # no block of code and no function: it is the body


@pytest.mark.skipif(bool(missing_protections()), reason="; ".join(missing_protections()))
def test_options_that_some_tasks_do_not_use_are_said(runs, choices):
    words = ("eval", runs / "gpt", f"code,{choices}", "--execute", "--limit", 2)
    answer = ensue(*words, "--draw", "each", "--shots", "1", "--num-samples", 2, "--json")
    assert answer.code == 0, answer.err
    notes = answer.json["notes"]
    assert "--draw each has no effect on code: the shots of programs are the same for all" in notes
    assert "--shots has no effect on code: it is asked without shots" in notes
    assert "--num-samples has no effect on mine: one answer is written" in notes


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("eval", "{run}", "code", "--execute", "--draw", "each"), "--draw each has no effect on code: the shots"),
        (("eval", "{run}", "code", "--execute", "--shots", "3"), "--shots has no effect on code: it is asked without"),
        (("eval", "{run}", "code", "--execute", "--shots-from", "trivia"), "--shots-from has no effect on code"),
        (("eval", "{run}", "trivia", "--shots", "1", "--shots-from", "code"), "shots of the kind of the tasks"),
        (("eval", "{run}", "trivia", "--num-samples", "2"), "--num-samples has no effect on trivia"),
        (("eval", "{run}", "trivia", "--temperature", "1"), "--temperature has no effect on trivia"),
        (("eval", "{run}", "code", "--execute", "--temperature", "-1"), "--temperature -1.0 must be from 0"),
        (("eval", "{run}", "code", "--execute", "--samples", "2", "--temperature", "0"), "2 greedy programs would be"),
        (("eval", "{run}", "code", "--execute", "--chat"), "has no chat template"),
        (("eval", "{run}"), "there is no task; name one"),
        (("eval", "{run}", "arithmetics"), "unknown task 'arithmetics'; did you mean 'arithmetic'?"),
        (("eval", "{run}", "piqa"), "piqa needs its data; add --data"),
        (("eval", "{run}", "trivia", "--data", "nosuch"), "--data nosuch: there is no such file or folder"),
        (("eval", "{run}", "gone.jsonl"), "gone.jsonl"),
        (("eval", "{run}", "trivia", "--shots", "x"), "--shots 'x' is not a list of numbers"),
        (("eval", "{run}", "trivia", "--shots", "99"), "65 other examples to draw 99 shots from"),
        (("eval", "{run}", "trivia,trivia"), "there are two tasks trivia"),
        (("eval", "{run}", "trivia", "--draw", "some"), "--draw some must be one or each"),
        (("eval", "{run}", "trivia", "--limit", "-1"), "--limit -1 must be 0"),
        (("eval", "{run}", "trivia", "--execute"), "--execute is for tasks of programs"),
        (("eval", "{run},{run}", "trivia"), "a run is named twice"),
        (("eval", "{run}", "code.jsonl"), "runs programs that the model wrote; add --execute"),
        (("eval", "{run}", "trivia", "--chat"), "has no chat template"),
        (("eval", "{run}", "trivia", "--out", "code.jsonl"), "is a file, not a folder"),
        (("eval", "{run}", "trivia", "--out", "."), "holds other files"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, what, runs):
    problem = {"task_id": "x/0", "prompt": "def f():", "entry_point": "f", "test": ""}
    Path("code.jsonl").write_text(json.dumps(problem) + "\n", encoding="utf-8")
    answer = ensue(*(word.format(run=runs / "gpt") for word in words))
    assert answer.code == 2 and what in answer.err and answer.err.count("\n") == 1, answer.err
