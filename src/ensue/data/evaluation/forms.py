"""The forms of JSONL files with evaluation tasks: what the fields of a line mean.

A form is recognised by its fields. Those of llm-foundry hold prompts; those of the data sets themselves (ARC, PIQA …)
hold parts of which the prompt of the literature is made; lines that lm-evaluation-harness logs hold finished prompts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ensue.core.errors import InputError
from ensue.data.evaluation.task import Example
from ensue.data.lines import check_text

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """A form of a line."""

    name: str
    kind: str
    fields: tuple[str, ...]
    """The fields that it is recognised by; alternatives are separated by |."""
    read: Callable[[Record, str], Example] | None = None
    """Makes an example of a record; None if the record itself is needed."""
    ready: bool = False
    """True if the prompt is complete, so that no shots are added."""

    def fits(self, record: Record) -> bool:
        """Return whether a record has the fields."""
        return all(any(name in record for name in field.split("|")) for field in self.fields)


def _text(record: Record, names: str, where: str) -> str:
    """The text of the first field that is there; ``names`` are separated by |."""
    name = next((one for one in names.split("|") if one in record), None)
    if name is None:
        raise InputError(f"there is no field {names.replace('|', ' or ')}", where=where)
    return check_text(record[name], name, where)


def _some_text(record: Record, names: str, where: str) -> str:
    text = _text(record, names, where)
    if not text:
        raise InputError(f"the field {names.replace('|', ' or ')} is empty", where=where)
    return text


def _texts(value: Any, name: str, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(f"the field {name!r} is not a list of texts", where=where, hint='write ["…", "…"]')
    return tuple(check_text(one, name, where) for one in value)


def _options(value: Any, name: str, where: str) -> tuple[str, ...]:
    options = _texts(value, name, where)
    if not all(options):
        raise InputError("an option is empty", where=where, hint="every option needs at least one character")
    if len(options) < 2:
        raise InputError("a single option is no choice", where=where, hint="give two or more")
    return options


def _index(value: Any, count: int, where: str, first: int = 0) -> int:
    """The number of the right option, from a number or its digits."""
    text = str(value).strip()
    if isinstance(value, bool) or not text.lstrip("-").isdecimal() or not 0 <= int(text) - first < count:
        raise InputError(f"the right option {text[:40]!r} is none of {count}", where=where, hint=f"count from {first}")
    return int(text) - first


def _choice(record: Record, where: str) -> Example:
    options = _options(record["choices"], "choices", where)
    gold = _index(record[next(name for name in ("gold", "label", "answer") if name in record)], len(options), where)
    return Example((_text(record, "query|question|context", where),), options, gold, where)


def _context_options(record: Record, where: str) -> Example:
    contexts = _options(record["context_options"], "context_options", where)
    continuation = _text(record, "continuation", where)
    return Example(contexts, (continuation,) * len(contexts), _index(record["gold"], len(contexts), where), where)


def _cloze(record: Record, where: str) -> Example:
    continuation = _some_text(record, "continuation|completion", where)
    return Example((_text(record, "context", where),), (continuation,), where=where)


def _match(record: Record, where: str) -> Example:
    name = next(one for one in ("answer", "answers", "target") if one in record)
    given = record[name]
    answers = _texts(given if isinstance(given, list) else [given], name, where)
    if "aliases" in record:
        answers += tuple(one for one in _texts(record["aliases"], "aliases", where) if one not in answers)
    context, group = _text(record, "context|question|prompt|query|input", where), str(record.get("group", ""))
    return Example((context,), answers, where=where, group=group)


def _text_only(record: Record, where: str) -> Example:
    return Example(("",), (_some_text(record, "text", where),), where=where)


def _arc(record: Record, where: str) -> Example:
    question, choices = record["question"], record.get("choices")
    if isinstance(question, Mapping):  # as AI2 publishes it: {"stem": …, "choices": [{"text": …, "label": …}]}
        stem, listed = _text(question, "stem", where), question.get("choices")
        parts = listed if isinstance(listed, list) and all(isinstance(one, Mapping) for one in listed) else []
        choices = {name: [one.get(name) for one in parts] for name in ("text", "label")}
    else:
        stem = _text(record, "question", where)
    texts, labels = (choices.get(name) if isinstance(choices, Mapping) else None for name in ("text", "label"))
    options = _options(texts, "choices", where)
    if not isinstance(labels, list) or record["answerKey"] not in labels or len(labels) != len(options):
        raise InputError("the field 'answerKey' is the label of no choice", where=where)
    return Example((f"Question: {stem}",), options, labels.index(record["answerKey"]), where)


def _piqa(record: Record, where: str) -> Example:
    options = (_text(record, "sol1", where), _text(record, "sol2", where))
    return Example((f"Question: {_text(record, 'goal', where)}",), options, _index(record["label"], 2, where), where)


def _boolq(record: Record, where: str) -> Example:
    answer = record["answer"] if "answer" in record else record["label"]
    context = f"{_text(record, 'passage', where)}\nQuestion: {_text(record, 'question', where)}?"
    return Example(
        (context,), ("no", "yes"), _index(int(answer) if isinstance(answer, bool) else answer, 2, where), where
    )


def _hellaswag(record: Record, where: str) -> Example:
    b = _text(record, "ctx_b", where).capitalize()
    context = f"{_text(record, 'activity_label', where)}: {_text(record, 'ctx_a', where)} {b}"
    options = _options(record["endings"], "endings", where)
    gold = _index(record["label"], len(options), where)
    return Example((_clean(context),), tuple(map(_clean, options)), gold, where)


def _clean(text: str) -> str:
    """HellaSwag's text without the marks of WikiHow.

    >>> _clean("How to sew [title] Thread it. [step] Then")
    'How to sew. Thread it. Then'
    """
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def _winogrande(record: Record, where: str) -> Example:
    before, gap, after = _text(record, "sentence", where).partition("_")
    if not gap:
        raise InputError("the sentence has no _ to fill", where=where)
    options = [_text(record, name, where) for name in ("option1", "option2")]
    contexts = tuple(before + option for option in options)
    return Example(contexts, (after.strip(),) * 2, _index(record["answer"], 2, where, first=1), where)


def _copa(record: Record, where: str) -> Example:
    joined = "because" if record["question"] == "cause" else "therefore"
    options = tuple(_text(record, name, where) for name in ("choice1", "choice2"))
    lowered = tuple(option[:1].lower() + option[1:] for option in options)
    premise = _text(record, "premise", where).strip().removesuffix(".")
    return Example((f"{premise} {joined}",), lowered, _index(record["label"], 2, where), where)


def last_word(text: str, where: str) -> Example:
    """The cloze of a text's last word, as LAMBADA has it."""
    context, _, word = text.rpartition(" ")
    if not context.strip():
        raise InputError("the text has no two words", where=where)
    return Example((context,), (word,), where=where)


def logged_pairs(record: Record) -> list[list[Any]]:
    """The contexts of a line of lm-evaluation-harness's log, each with its continuation or with how an answer ends."""
    given = record["arguments"]
    if isinstance(given, Mapping):
        given = [list(one.values()) for one in given.values() if isinstance(one, Mapping)]
    return [one for one in given if isinstance(one, list) and len(one) == 2] if isinstance(given, list) else []


def _logged(record: Record, where: str) -> Example:
    """A line of lm-evaluation-harness's log: contexts and continuations as they were asked."""
    pairs = logged_pairs(record)
    if not pairs:
        raise InputError("the field 'arguments' has no contexts and continuations", where=where)
    contexts = tuple(check_text(context, "arguments", where) for context, _ in pairs)
    if isinstance(pairs[0][1], Mapping):  # an answer to write; the second part says how it ends
        return Example(contexts[:1], (str(record.get("target", "")),), where=where)
    options = tuple(check_text(option, "arguments", where) for _, option in pairs)
    gold = _index(record.get("target"), len(options), where) if len(options) > 1 else 0
    return Example(contexts if len(set(contexts)) > 1 else contexts[:1], options, gold, where)


FORMS: tuple[Form, ...] = (
    Form("lm-evaluation-harness log", "choice", ("doc_id", "arguments"), _logged, ready=True),
    Form("HumanEval", "code", ("task_id", "prompt", "entry_point", "test")),
    Form("MBPP", "code", ("text", "test_list")),
    Form("llm-foundry multiple choice", "choice", ("query", "choices", "gold"), _choice),
    Form("llm-foundry schema", "choice", ("context_options", "continuation", "gold"), _context_options),
    Form("ARC", "choice", ("question", "answerKey"), _arc),
    Form("PIQA", "choice", ("goal", "sol1", "sol2", "label"), _piqa),
    Form("BoolQ", "choice", ("passage", "question", "answer|label"), _boolq),
    Form("HellaSwag", "choice", ("ctx_a", "ctx_b", "activity_label", "endings", "label"), _hellaswag),
    Form("Winogrande", "choice", ("sentence", "option1", "option2", "answer"), _winogrande),
    Form("COPA", "choice", ("premise", "choice1", "choice2", "question", "label"), _copa),
    Form("multiple choice", "choice", ("query|question|context", "choices", "gold|label|answer"), _choice),
    Form("cloze", "cloze", ("context", "continuation|completion"), _cloze),
    Form("question and answer", "match", ("context|question|prompt|query|input", "answer|answers|target"), _match),
    Form("text", "perplexity", ("text",), _text_only),
)
"""In the order in which they are tried."""


def form_of(record: Record, where: str) -> Form:
    """Return the form of a record; raise InputError if it has none."""
    found = next((form for form in FORMS if form.fits(record)), None)
    if found is None:
        fields = ", ".join(str(name)[:20] for name in list(record)[:6])
        hint = "`ensue eval` alone lists the forms of task files"
        raise InputError(f"a line with the fields {fields} is no task", where=where, hint=hint)
    return found
