"""Programming problems: a prompt to continue, and tests that the finished program must pass.

Two forms of JSONL lines are read, recognised by their fields:

    HumanEval   {"task_id", "prompt", "entry_point", "test"}: the program is the prompt, without white space at its end,
                and its continuation; ``test`` defines ``check(candidate)`` (Chen et al., 2021)
    MBPP        {"task_id", "text", "test_list"}: a description and assertions. Without shots the prompt is a docstring
                with the first assertion (Fried et al., 2023), with shots the one of Austin et al. (2021)

A chat model is asked in messages instead (``Problem.messages``), and the program is the first block of code that it
answers with.

>>> read_problems("code")[0].id
'code/0'
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ensue.core.errors import InputError
from ensue.data.lines import check_text, located_lines, parse_object

BUILT_IN = "code"
"""The name of the built-in problems, in the form of HumanEval."""
FUNCTION_STOPS = ("\nclass", "\ndef", "\n#", "\n@", "\nprint", "\nif", "\n```")
"""What comes after the body of a function ends it."""
DOCSTRING_STOPS = ("\nclass", "\nassert", '\n"""', "\nprint", "\nif", "\n```")
SHOT_STOPS = ("[DONE]",)
TASK = (
    "You are an expert Python programmer, and here is your task: {} Your code should pass these tests:\n\n{}\n[BEGIN]\n"
)
COMPLETE = "Complete this Python function. Answer with the whole function in one block of code.\n\n```python\n{}\n```"
WRITE = "{} Answer with one block of Python code. It should pass these tests:\n\n```python\n{}\n```"
"""What a chat model is asked."""
CHAT_STOPS = ("\n```\n\n",)
"""The end of a block of code with text after it."""
MBPP_SHOTS, MBPP_TEST = (2, 3, 4), range(11, 511)
"""The task ids of MBPP that the literature uses as shots, and those it tests."""
EXAMPLE = '"task_id": "1", "prompt": "def f():", "entry_point": "f", "test": "def check(candidate): …"'

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem: what the model continues, and how the program is made and tested."""

    id: str
    prompt: str
    tests: str
    """Python that raises an exception unless the program is right."""
    stops: tuple[str, ...]
    """Texts that end a continuation."""
    begin: str = ""
    """What the program has before the continuation."""
    solution: str = ""
    """A right continuation, if known."""
    messages: tuple[tuple[str, str], ...] = ()
    """The problem for a chat model: roles and texts, shots first."""
    entry: str = ""
    """The function that a continuation finishes."""

    def program(self, completion: str) -> str:
        """The program that a continuation makes."""
        return self.begin + completion

    def answered_program(self, answer: str) -> str:
        """The program of a chat model's answer: its first block of code.

        What the prompt has before the function, such as imports, comes first. Code that does not define the function
        is taken as its body.
        """
        code = code_block(answer)
        if not self.entry:
            return code
        if not _definition(self.entry).search(code):
            return f"{self.begin}\n{code}"
        found = _definition(self.entry).search(self.begin)
        return self.begin[: found.start() if found else 0] + code


def code_block(answer: str) -> str:
    r"""Return the first fenced block of an answer in Markdown, up to its end if it is not closed; without one, all.

    >>> code_block("Here it is:\n```python\nx = 1\n```\nIt is short."), code_block("x = 1")
    ('x = 1\n', 'x = 1')
    """
    found = re.search(r"^[ \t]*```[^\n`]*\n(.*?)(?:^[ \t]*```|\Z)", answer, re.DOTALL | re.MULTILINE)
    return found[1] if found else answer


def _definition(name: str) -> re.Pattern[str]:
    """Finds the definition of a function."""
    return re.compile(rf"^(?:async[ \t]+)?def[ \t]+{re.escape(name)}\b", re.MULTILINE)


def read_problems(source: str | Path, shots: int = 0, *, shots_from: Sequence[Record] = ()) -> list[Problem]:
    """Read problems from a JSONL file (or .gz), or the built-in ones ("code")."""
    if str(source) == BUILT_IN and not Path(source).exists():
        lines = files("ensue.data").joinpath("code_problems.jsonl").read_text(encoding="utf-8").splitlines()
        located = [(f"{BUILT_IN}:{number}", line) for number, line in enumerate(lines, 1)]
    else:
        located = list(located_lines(source))
    records = [(where, parse_object(line, where, EXAMPLE)) for where, line in located if line.strip()]
    places = [where for where, _ in records]
    return make_problems([record for _, record in records], shots, places, shots_from=shots_from)


def make_problems(
    records: Sequence[Record], shots: int = 0, places: Sequence[str] = (), *, shots_from: Sequence[Record] = ()
) -> list[Problem]:
    """Make problems of records of one form; ``places`` are their files and lines, for messages.

    Shots are the data set's own, or the first of ``shots_from`` that are not the question.
    """
    places = places or [f"problem {number}" for number in range(1, len(records) + 1)]
    if not records:
        raise InputError("there are no problems", hint="give a file with one JSON object a line")
    if "test_list" in records[0]:
        problems = _mbpp(records, shots, places, shots_from)
    elif shots:
        raise InputError("problems in the form of HumanEval are continued as they are", hint="use --shots 0")
    else:
        problems = [_human_eval(record, where) for record, where in zip(records, places)]
    repeated = [name for name, count in Counter(problem.id for problem in problems).items() if count > 1]
    if repeated:
        raise InputError(f"several problems have the task_id {repeated[0]!a}", hint="give each a name of its own")
    return problems


def _human_eval(record: Record, where: str) -> Problem:
    prompt, entry, test = (_field(record, name, where) for name in ("prompt", "entry_point", "test"))
    if not entry.isidentifier():
        raise InputError(f"the field 'entry_point' is {entry!a}, which is no name of a function", where=where)
    tests = _checked(f"{test}\n\ncheck({entry})\n", where)
    begin = prompt.rstrip()  # the line end is the model's: a token holds it together with the indentation
    solution = prompt[len(begin) :] + check_text(record.get("canonical_solution", ""), "canonical_solution", where)
    asked = (("user", COMPLETE.format(begin)),)
    return Problem(_id(record, where), begin, tests, FUNCTION_STOPS, begin, solution, asked, entry)


def _mbpp(records: Sequence[Record], shots: int, places: Sequence[str], pool: Sequence[Record]) -> list[Problem]:
    """Problems of MBPP; of the whole data set those of its test part."""
    numbers = {record.get("task_id"): index for index, record in enumerate(records)}
    whole = {*MBPP_SHOTS, *MBPP_TEST} <= set(numbers)
    asked = [numbers[number] for number in MBPP_TEST] if whole else list(range(len(records)))
    if pool:
        solved = [(record, f"shot {number}") for number, record in enumerate(pool, 1)]
    else:
        usual = [numbers[number] for number in MBPP_SHOTS if whole]
        order = [*usual, *(index for index in range(len(records)) if index not in usual)][:shots]
        solved = [(records[index], places[index]) for index in order]
        asked = [index for index in asked if index not in order]
    problems = []
    for index in asked:
        shown = [one for one in solved if one[0].get("text") != records[index].get("text")][:shots] if pool else solved
        if len(shown) == shots:
            problems.append(_mbpp_problem(records[index], places[index], shown))
    if len(problems) < len(asked) or not asked:
        raise InputError(f"there are {len(pool or records)} problems, too few for {shots} shots", hint="use fewer")
    return problems


def _mbpp_problem(record: Record, where: str, shots: Sequence[tuple[Record, str]]) -> Problem:
    text, tests = _field(record, "text", where), _assertions(record, where)
    setup = check_text(record.get("test_setup_code", ""), "test_setup_code", where).replace("\r\n", "\n")
    solution = check_text(record.get("code", ""), "code", where).replace("\r\n", "\n")
    checks = _checked("\n".join([setup, *tests]) + "\n", where)
    turns = [turn for shot, place in shots for turn in _shot_turns(shot, place)]
    messages = (*turns, ("user", WRITE.format(text, "\n".join(tests))))
    if shots:
        prompt = "".join(_shot(*shot) for shot in shots) + _task(text, tests)
        return Problem(_id(record, where), prompt, checks, SHOT_STOPS, "", solution, messages)
    prompt = f'"""\n{text}\n{tests[0]}\n"""'
    return Problem(_id(record, where), prompt, checks, DOCSTRING_STOPS, "", solution, messages)


def _task(text: str, tests: Sequence[str]) -> str:
    return TASK.format(text, "\n".join(tests))


def _shot(record: Record, where: str) -> str:
    """A problem with its solution."""
    code = _field(record, "code", where).replace("\r\n", "\n")
    return f"{_task(_field(record, 'text', where), _assertions(record, where))}{code}\n[DONE]\n\n"


def _shot_turns(record: Record, where: str) -> list[tuple[str, str]]:
    """A problem with its solution as two messages."""
    code = _field(record, "code", where).replace("\r\n", "\n").strip()
    asked = WRITE.format(_field(record, "text", where), "\n".join(_assertions(record, where)))
    return [("user", asked), ("assistant", f"```python\n{code}\n```")]


def _assertions(record: Record, where: str) -> list[str]:
    tests = record.get("test_list")
    if not isinstance(tests, list) or not tests:
        raise InputError("the field 'test_list' is not a list of assertions", where=where, hint='write ["assert …"]')
    return [check_text(test, "test_list", where) for test in tests]


def _checked(tests: str, where: str) -> str:
    """The tests, which must be Python: otherwise no program could pass them."""
    try:
        with warnings.catch_warnings(action="ignore"):
            compile(tests, "tests", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the tests are not Python ({error})", where=where) from error
    return tests


def _field(record: Record, name: str, where: str) -> str:
    if name not in record:
        hint = f"a line should look like {{{EXAMPLE}}}, or have text and test_list"
        raise InputError(f"there is no field {name!r}", where=where, hint=hint)
    return check_text(record[name], name, where)


def _id(record: Record, where: str) -> str:
    given = record.get("task_id", where)
    return given if isinstance(given, str) else str(given)
