"""Chat templates: how the messages of a conversation become one prompt (Jinja, as models publish them).

A template is a small program of whoever made the model, so it runs in Jinja's sandbox, with a limit on the lines it
executes and on what it writes. The names of special tokens that it writes become those tokens. In the messages they are
plain text: a user cannot end a message, or begin one as somebody else.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, NoReturn

import numpy as np
from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from ensue.core.errors import InputError
from ensue.data.tokenizers.subword import SubwordTokenizer

MAX_TEMPLATE = 1 << 16
"""The longest template, in characters."""
MAX_LINES = 200_000
"""Lines that a template may execute, and as many again for each message."""
MAX_OUTPUT = 1 << 16
"""Characters that a template may write beyond those of the messages."""
MAX_REPEAT = 1 << 12
"""The largest result of a multiplication in a template, in characters or as a number."""
MAX_TEXT = 1 << 22
"""The longest text that an expression may make."""
UNSAFE_METHODS = frozenset(
    ["center", "expandtabs", "format", "format_map", "join", "ljust", "replace", "rjust", "zfill"]
)
"""Methods of texts that can make a long text of a short one; the filters ``join`` and ``replace`` are limited."""
FILTERS = frozenset(
    (
        "capitalize",
        "count",
        "d",
        "default",
        "first",
        "int",
        "items",
        "join",
        "last",
        "length",
        "list",
        "lower",
        "map",
        "reject",
        "rejectattr",
        "replace",
        "reverse",
        "select",
        "selectattr",
        "string",
        "title",
        "tojson",
        "trim",
        "unique",
        "upper",
    )
)
"""Filters that a template may use; none makes a long text of a short one."""
MARKS = "\ue000\ue001\ue002\ue003"
"""Characters that mark the name of a special token in a message, one of which the messages do not have."""


class Message(NamedTuple):
    """A message of a conversation."""

    role: str
    """system, user or assistant."""
    content: str


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which no expression makes a long text of short ones."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = [len(side) if isinstance(side, str | list | tuple) else side for side in (left, right)]
        numbers = all(isinstance(size, int | float) for size in sizes)
        if operator == "+" and (not numbers or abs(sizes[0] + sizes[1]) <= MAX_TEXT):
            return left + right
        if operator == "*" and numbers and abs(sizes[0] * sizes[1]) <= MAX_REPEAT:
            return left * right
        if operator == "%" and not isinstance(left, str):
            return left % right
        raise SecurityError(f"{operator} of values that may become large")

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return super().is_safe_attribute(obj, attr, value) and not (isinstance(obj, str) and attr in UNSAFE_METHODS)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        return _no_format if super().wrap_str_format(value) is not None else None


def _no_format(*values: Any, **named: Any) -> str:
    raise SecurityError("format of values that may become large")


class _WithoutConcatenation(NodeTransformer):
    """a ~ b as a + b of two texts, whose sizes the sandbox sees."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        parts = [nodes.Filter(self.visit(one), "string", [], [], None, None, lineno=node.lineno) for one in node.nodes]
        joined: nodes.Expr = parts[0]
        for part in parts[1:]:
            joined = nodes.Add(joined, part, lineno=node.lineno)
        return joined


def _join(values: Any, separator: str = "", attribute: str | None = None) -> str:
    parts = [str(value if attribute is None else value[attribute]) for value in values]
    if sum(map(len, parts)) + len(str(separator)) * len(parts) > MAX_TEXT:
        raise SecurityError("join of values that may become large")
    return str(separator).join(parts)


def _replace(given: Any, old: str, new: str) -> str:
    text = str(given)
    if len(text) + text.count(str(old)) * len(str(new)) > MAX_TEXT:
        raise SecurityError("replace of values that may become large")
    return text.replace(str(old), str(new))


class ChatTemplate:
    """A template and the special tokens that it may write."""

    def __init__(self, source: str, tokenizer: SubwordTokenizer, begin: str = "", end: str = "") -> None:
        if len(source) > MAX_TEMPLATE:
            raise InputError(f"the chat template has {len(source):,} characters, at most {MAX_TEMPLATE:,} are allowed")
        self.source, self._tokenizer = source, tokenizer
        self._given = {"bos_token": begin, "eos_token": end}
        names = sorted(tokenizer.named, key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, names)))
        environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
        environment.filters = {name: one for name, one in environment.filters.items() if name in FILTERS}
        environment.filters |= {"tojson": _to_json, "join": _join, "replace": _replace}
        environment.globals |= {"raise_exception": _refuse}
        for name in ("lipsum", "cycler", "joiner"):
            environment.globals.pop(name, None)
        try:
            tree = environment.parse(source)
            if any(tree.find_all((nodes.Import, nodes.FromImport, nodes.Include, nodes.Extends))):
                raise InputError("the chat template includes another one, which is not supported")
            self._template = environment.from_string(_WithoutConcatenation().visit(tree))
        except (TemplateError, RecursionError) as error:
            raise InputError(f"the chat template cannot be used: {str(error)[:200]}") from error

    def text(self, messages: Sequence[Message], reply: bool = True) -> str:
        """Return the prompt as text; with ``reply`` it ends where the assistant's answer begins."""
        values: dict[str, Any] = {"messages": [one._asdict() for one in messages], "add_generation_prompt": reply}
        limit = MAX_OUTPUT + 2 * sum(len(one.content) + len(one.role) for one in messages)
        try:
            with _limited(MAX_LINES * (1 + len(messages))):
                pieces, size = [], 0
                for piece in self._template.generate(**values, **self._given):
                    size += len(piece)
                    if size > limit:
                        raise InputError("the chat template writes far more than the messages")
                    pieces.append(piece)
        except InputError:
            raise
        except Exception as error:  # a template can raise anything that an expression can
            raise InputError(f"the chat template failed: {str(error)[:200] or type(error).__name__}") from error
        return "".join(pieces)

    def tokens(self, messages: Sequence[Message], reply: bool = True) -> np.ndarray:
        """Return the prompt as tokens; special tokens are those of the template alone."""
        contents = "".join(one.content + one.role for one in messages)
        mark = next((one for one in MARKS if one not in contents), "")
        if not mark and self._special.search(contents):
            raise InputError("a message has the name of a special token and all characters that could mark it")
        marked = [
            Message(*(self._special.sub(lambda m: m[0][0] + mark + m[0][1:], part) for part in one)) for one in messages
        ]
        text, tokens, at = self.text(marked, reply), [], 0
        for found in self._special.finditer(text):
            tokens += [
                self._plain(text[at : found.start()], mark),
                np.array([self._tokenizer.named[found[0]]], np.int32),
            ]
            at = found.end()
        return np.concatenate([*tokens, self._plain(text[at:], mark)])

    def _plain(self, text: str, mark: str) -> np.ndarray:
        return self._tokenizer.encode(text.replace(mark, "") if mark else text)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=min(indent, 8) if indent else None)


def _refuse(message: str) -> NoReturn:
    raise InputError(f"the chat template refuses these messages: {str(message)[:200]}")


class _limited:
    """Raises InputError when a template executes too many lines, in this thread."""

    def __init__(self, lines: int) -> None:
        self._left = lines
        self._before: Callable[..., Any] | None = None

    def _count(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith("<template>"):
            return None
        self._left -= 1
        if self._left < 0:
            raise InputError("the chat template runs too long")
        return self._count

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._count)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)


def messages_from(given: Sequence[Mapping[str, Any]], where: str = "") -> list[Message]:
    """Return messages from JSON; raise InputError for anything else."""
    found = []
    for one in given:
        role, content = (one.get(name) if isinstance(one, Mapping) else None for name in ("role", "content"))
        if not isinstance(role, str) or not isinstance(content, str):
            raise InputError("a message needs a role and a content, both text", where=where)
        found.append(Message(role, content))
    return found
