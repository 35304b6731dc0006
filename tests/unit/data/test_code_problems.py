import json

import pytest

from ensue.core.errors import InputError
from ensue.data.code_problems import MBPP_TEST, code_block, make_problems, read_problems

FUNCTION = {
    "task_id": "T/1",
    "prompt": 'def one():\n    """Return 1."""\n',
    "entry_point": "one",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
DESCRIBED = {
    "task_id": 7,
    "text": "Write a function that returns one.",
    "code": "def one():\r\n  return 1",
    "test_setup_code": "expected = 1",
    "test_list": ["assert one() == expected", "assert one() < 2"],
}


def run(problem, completion):
    module = {}
    exec(problem.program(completion), module)
    exec(problem.tests, module)


def test_a_function_is_continued_and_checked():
    (problem,) = make_problems([FUNCTION])
    assert problem.prompt == 'def one():\n    """Return 1."""' and problem.id == "T/1"  # without its line end
    run(problem, problem.solution)
    with pytest.raises(AssertionError):
        run(problem, "\n    return 2\n")
    assert problem.solution == "\n    return 1\n"


def test_a_described_function_is_written_as_a_whole():
    (problem,) = make_problems([DESCRIBED])
    assert problem.prompt == '"""\nWrite a function that returns one.\nassert one() == expected\n"""'
    run(problem, problem.solution)
    with pytest.raises(AssertionError):
        run(problem, "def one(): return 3")


def test_shots_are_solved_problems_before_the_prompt_and_are_not_asked():
    records = [DESCRIBED | {"task_id": number, "text": f"Text {number}."} for number in range(5)]
    problems = make_problems(records, shots=2)
    assert [problem.id for problem in problems] == ["2", "3", "4"]
    assert problems[0].prompt.count("[BEGIN]\ndef one():\n  return 1\n[DONE]\n\n") == 2
    assert problems[0].prompt.endswith("Text 2. " + problems[0].prompt.rpartition("Text 2. ")[2])
    assert problems[0].prompt.endswith("assert one() == expected\nassert one() < 2\n[BEGIN]\n")
    assert problems[0].stops == ("[DONE]",) and "\r" not in problems[0].prompt


def test_of_the_whole_of_mbpp_its_test_part_is_asked_after_the_usual_shots():
    records = [DESCRIBED | {"task_id": number, "text": f"Text {number}."} for number in range(1, 975)]
    problems = make_problems(records, shots=3)
    assert [int(problem.id) for problem in problems] == list(MBPP_TEST)
    shown = problems[0].prompt.split("Your code should")
    assert [part.rpartition("task: ")[2] for part in shown[:4]] == [f"Text {number}. " for number in (2, 3, 4, 11)]


def test_built_in_problems_are_in_the_form_of_functions():
    problems = read_problems("code")
    assert len(problems) >= 10 and all(problem.solution and problem.tests for problem in problems)
    for problem in problems:
        run(problem, problem.solution)
        with pytest.raises((AssertionError, TypeError)):
            run(problem, "\n    return None\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ('{"task_id": "a"}', "there is no field 'prompt'"),
        (json.dumps(FUNCTION | {"test": 3}), "the field 'test' is not text"),
        (json.dumps(FUNCTION | {"entry_point": "one)"}), "no name of a function"),
        (json.dumps(DESCRIBED | {"test_list": []}), "'test_list' is not a list"),
        (json.dumps(FUNCTION | {"test": "def check(f:"}), "the tests are not Python"),
        (json.dumps(DESCRIBED | {"test_list": ["assert f( == 1"]}), "the tests are not Python"),
        (json.dumps(FUNCTION) + "\n" + json.dumps(FUNCTION), "several problems have the task_id 'T/1'"),
    ],
)
def test_wrong_lines_are_refused_with_their_place(line, message, tmp_path):
    path = tmp_path / "problems.jsonl"
    path.write_text(line)
    with pytest.raises(InputError, match=message) as caught:
        read_problems(path)
    assert "several" in message or f"{path}:1" in str(caught.value)


def test_shots_that_cannot_be_are_refused():
    with pytest.raises(InputError, match="continued as they are"):
        make_problems([FUNCTION], shots=1)
    with pytest.raises(InputError, match="too few for 1 shots"):
        make_problems([DESCRIBED], shots=1)
    with pytest.raises(InputError, match="no problems"):
        make_problems([])


def test_shots_of_another_file_are_its_first_ones_without_the_question():
    records = [DESCRIBED | {"task_id": number, "text": f"Text {number}."} for number in range(3)]
    others = [DESCRIBED | {"text": f"Text {number}."} for number in (2, 8, 9)]
    problems = make_problems(records, shots=2, shots_from=others)
    assert [problem.id for problem in problems] == ["0", "1", "2"]  # none of them is a shot
    shown = [[number for number in range(10) if f"Text {number}." in problem.prompt] for problem in problems]
    assert shown == [[0, 2, 8], [1, 2, 8], [2, 8, 9]]
    with pytest.raises(InputError, match="there are 3 problems, too few for 3 shots"):
        make_problems(records, shots=3, shots_from=others)


def test_a_chat_model_is_asked_in_messages():
    (problem,) = make_problems([FUNCTION])
    ((role, text),) = problem.messages
    assert role == "user" and text.endswith('\n\n```python\ndef one():\n    """Return 1."""\n```')
    described = make_problems([DESCRIBED | {"task_id": n, "text": f"Text {n}."} for n in range(3)], shots=1)[0]
    assert [role for role, _ in described.messages] == ["user", "assistant", "user"]
    assert described.messages[1][1] == "```python\ndef one():\n  return 1\n```"
    assert described.messages[2][1].startswith("Text 1. ") and "assert one() < 2" in described.messages[2][1]


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ("Sure!\n\n```python\nx = 1\n```\n\nIt is 1.", "x = 1\n"),
        ("```\nx = 1\n```\n```\nx = 2\n```", "x = 1\n"),
        ("```py\nx = 1\ny = [\n", "x = 1\ny = [\n"),  # cut off, or ended at a stop sequence
        ("x = 1", "x = 1"),
        ("Use `x`:\n```python\nx = '``` in it'\n```", "x = '``` in it'\n"),
    ],
)
def test_the_first_block_of_code_is_taken_from_an_answer(answer, code):
    assert code_block(answer) == code


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("def one():\n    return ceil(0.5)", True),  # the import of the prompt is kept
        ("from math import floor\n\ndef one():\n    return floor(1.5)", True),
        ("    return 1", True),  # the body alone
        ("def one():\n    return 2", False),
        ("def other():\n    return 1", False),
        ('def one():\n    """Return 1."""', False),  # the prompt again
    ],
)
def test_an_answered_program_has_what_stands_before_the_function(code, right):
    (problem,) = make_problems([FUNCTION | {"prompt": "from math import ceil\n\n" + FUNCTION["prompt"]}])
    program, module = problem.answered_program(f"Here:\n```python\n{code}\n```\nDone."), {}
    exec(program, module)
    if right:
        exec(problem.tests, module)
    else:
        with pytest.raises(AssertionError):
            exec(problem.tests, module)
