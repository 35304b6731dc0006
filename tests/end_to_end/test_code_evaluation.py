"""Programs written by tiny models, run in the sandbox, and pass@k of programs that are known."""

import json
from pathlib import Path

import pytest

import ensue as library
from ensue.core.errors import InputError
from ensue.data.code_problems import read_problems
from ensue.measure.sandbox import execution
from ensue.measure.sandbox.execution import OUTCOMES, Limits, missing_protections
from ensue.runs.completions import Completion, complete
from ensue.search.sampling import Sampling
from ensue.verbs import code_evaluation
from ensue.verbs.code_evaluation import evaluate_code

protected = pytest.mark.skipif(bool(missing_protections()), reason="; ".join(missing_protections()))


@pytest.mark.parametrize("name", ["gpt", "lstm", "ngram"])
def test_a_completion_is_the_text_up_to_the_first_stop_sequence(name, runs):
    run, prompts = library.load(runs / name), ["the rain", "the", "the clock fell", "the rain"]
    whole = [run.generate(prompt, tokens=20, temperature=0)[0] for prompt in prompts]
    how = Sampling(tokens=20, temperature=0)
    for batch in (1, 3, 16):
        found = complete(run, prompts, how, batch=batch)
        assert [one.text for (one,) in found] == [text.text for text in whole]
        assert [one.finish for (one,) in found] == ["end" if text.sample.ended else "length" for text in whole]
        assert [one.log_prob for (one,) in found] == pytest.approx([text.sample.log_prob for text in whole], abs=1e-3)
    stop = next(text.text[3:5] for text in whole if len(text.text) > 6)
    for (one,), text in zip(complete(run, prompts, how, stops=[stop]), whole):
        assert one.text == text.text.split(stop)[0]
        assert (one.finish == "stop") == (stop in text.text) and one.tokens <= len(text.sample.tokens)


def test_prompts_with_a_long_common_start_get_the_same_completions(runs):
    run, how = library.load(runs / "lstm"), Sampling(tokens=12, temperature=0)
    prompts = ["the rain fell on the old stone bridge " * 2 + end for end in ("the", "a clock", "the", "")]
    assert [one.text for (one,) in complete(run, prompts, how)] == [
        run.generate(prompt, tokens=12, temperature=0)[0].text for prompt in prompts
    ]


def test_completions_depend_on_seed_and_number_and_not_on_the_batch(runs):
    run, how, seen = library.load(runs / "gpt"), Sampling(tokens=8, n=3, seed=5), []
    first = complete(run, ["the", "a"], how, finished=lambda index, number, one: seen.append((index, number, one)))
    again = complete(run, ["the", "a"], how, batch=2)
    assert [[one.text for one in group] for group in first] == [[one.text for one in group] for group in again]
    assert len({one.text for one in first[0]}) > 1
    assert {(index, number): one for index, number, one in seen} == {
        (index, number): one for index, group in enumerate(first) for number, one in enumerate(group)
    }


def test_a_model_that_reads_both_sides_cannot_complete(runs):
    with pytest.raises(InputError, match="cannot continue a text"):
        complete(library.load(runs / "bilm"), ["the"], Sampling(tokens=1))


@protected
def test_programs_of_a_model_are_run_counted_and_kept(runs):
    events = []
    result = evaluate_code(
        library.load(runs / "gpt"),
        "code",
        samples=2,
        sampling=Sampling(tokens=6, temperature=1.0),
        limit=3,
        seed=1,
        out=Path("programs.jsonl"),
        report=lambda kind, values: events.append((kind, values)),
    )
    rows = [json.loads(line) for line in Path("programs.jsonl").read_text().splitlines()]
    figures = result.as_dict()
    assert len(rows) == 6 and figures["problems"] == 3 and figures["samples"] == 2
    assert sum(figures["outcomes"].values()) == 6 and sum(figures["shares"].values()) == pytest.approx(1)
    assert set(figures["pass_at"]) == {"1", "2"} and {row["outcome"] for row in rows} <= set(OUTCOMES)
    prompts = {problem.id: problem.prompt for problem in read_problems("code")}
    assert all(row["program"] == prompts[row["problem"]] + row["completion"] for row in rows)
    assert events[-1] == ("progress", {"done": 6, "total": 6})


class Scripted:
    """A model that writes what it is told, in place of ``complete``."""

    def __init__(self, texts):
        self.texts = texts

    def __call__(self, run, prompts, how, *, finished, **_):
        for index, group in enumerate(self.texts):
            for number in reversed(range(how.n)):  # they end in any order
                finished(index, number, Completion(group[number], 1, 0.0, "stop"))


@protected
def test_outcomes_and_pass_at_k_of_known_programs(monkeypatch):
    problems = read_problems("code")[:3]
    right = [problem.solution for problem in problems]
    texts = [
        [right[0], "\n    return a - b\n", "\n    return a +\n", right[0]],
        [
            "\n    raise KeyError(number)\n",
            "\n    return open('/etc/passwd')\n",
            "\n    import os; os._exit(0)\n",
            right[1],
        ],
        ["\n    while True: pass\n", "\n    return [0] * 10**12\n", "\n    return x\n", "\n    return 0\n"],
    ]
    monkeypatch.setattr(code_evaluation, "complete", Scripted(texts))
    sampling, records = Sampling(temperature=0.5), [json.loads(line) for line in LINES[:3]]
    result = evaluate_code(None, records, samples=4, k=[1, 2], sampling=sampling, limits=Limits(cpu=1))
    assert [[one.outcome for one in result.attempts[at : at + 4]] for at in (0, 4, 8)] == [
        ["passed", "wrong answer", "syntax error", "passed"],
        ["exception", "forbidden", "exited", "passed"],
        ["time-out", "memory", "exception", "wrong answer"],
    ]
    one, two = result.rates
    assert one.value == pytest.approx((2 / 4 + 1 / 4 + 0) / 3) and two.value == pytest.approx((5 / 6 + 1 / 2 + 0) / 3)
    assert result.errors == {"KeyError": 1, "NameError": 1}
    lines = "\n".join(result.lines())
    assert "pass@1 25.0% (95 % interval" in lines and "passed               3  25.0%" in lines
    assert "exceptions: KeyError 1, NameError 1" in lines


LINES = Path(library.__file__).parent.joinpath("data", "code_problems.jsonl").read_text(encoding="utf-8").splitlines()


@protected
@pytest.mark.parametrize("kill_at", [1, 3, 5])
def test_programs_that_were_run_are_kept_when_the_user_stops_and_the_same_call_continues(kill_at, runs, monkeypatch):
    run, options = library.load(runs / "gpt"), {"samples": 2, "limit": 3, "seed": 1}
    how, written = Sampling(tokens=6, temperature=1.0), []
    whole = evaluate_code(run, "code", sampling=how, out=Path("whole.jsonl"), **options)

    def stopped(*given, finished, **more):
        def kill(index, number, completion):
            finished(index, number, completion)
            written.append((index, number))
            if len(written) == kill_at:
                raise KeyboardInterrupt

        return complete(*given, finished=kill, **more)

    monkeypatch.setattr(code_evaluation, "complete", stopped)
    with pytest.raises(KeyboardInterrupt):
        evaluate_code(run, "code", sampling=how, out=Path("kept.jsonl"), **options)
    first, partial = list(written), Path("kept.partial.jsonl")
    kept = [tuple(json.loads(line)["questions"]) for line in partial.read_text().splitlines()[1:]]
    assert kept and set(kept) <= set(first)  # programs that waited for a core were not run
    with partial.open("a") as file:
        file.write('{"questions": [0')  # killed while it wrote
    written.clear()
    kill_at = 100
    again = evaluate_code(run, "code", sampling=how, out=Path("kept.jsonl"), **options)
    assert not set(written) & set(kept) and len(written) + len(kept) == 6

    def same(result):
        return [(one.problem, one.number, one.program, one.outcome, one.error) for one in result.attempts]

    assert same(again) == same(whole) and again.as_dict() == whole.as_dict() and not partial.exists()
    assert len(Path("kept.jsonl").read_text().splitlines()) == 6


def test_wrong_options_are_refused_before_anything_is_generated():
    with pytest.raises(InputError, match="2 greedy programs would be equal"):
        evaluate_code(None, "code", samples=2, sampling=Sampling(temperature=0))
    with pytest.raises(InputError, match="k from 1 to the number of samples, 2, not 3"):
        evaluate_code(None, "code", samples=2, k=[3])


def test_without_a_protection_nothing_is_generated(monkeypatch):
    monkeypatch.setattr(execution, "has_seccomp", lambda: False)
    with pytest.raises(InputError, match="this platform has no seccomp"):
        evaluate_code(None, "code")


def test_where_the_sandbox_cannot_be_set_up_nothing_is_generated(monkeypatch):
    def generate(*_, **__):
        raise AssertionError("programs are generated")

    monkeypatch.setattr(execution, "seccomp_filter", lambda machine, pid: b"\xff" * 8)
    monkeypatch.setattr(execution, "has_seccomp", lambda: True)
    monkeypatch.setattr(execution, "check_protections", lambda allow: None)
    monkeypatch.setattr(code_evaluation, "complete", generate)
    with pytest.raises(InputError, match="the sandbox cannot be set up"):
        evaluate_code(None, "code")
