"""The sandbox of chat templates: Jinja's, in which no expression takes long or makes much of little.

Every list, table and text that a template makes is measured, with all it contains: what contains the same list twice
counts it twice. So nothing that compares, hashes or prints a value takes long. Methods of values are those listed here.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import wraps
from types import FrameType
from typing import Any, NoReturn

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import loopcontrols
from jinja2.runtime import Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from ensue.core.errors import InputError

MAX_LINES = 200_000
"""Lines that a template may execute, and as many again for each message."""
MAX_REPEAT = 1 << 12
"""The largest result of a multiplication in a template, in characters or as a number."""
MAX_TEXT = 1 << 22
"""The longest text that an expression may make."""
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
"""Filters that a template may use."""
DATE_FORM = re.compile(r"(?:[^%]|%-?[aAbBdHIjmMpSuwyYZ%]){0,64}")
"""Forms of dates that a template may ask for."""
MAX_SECONDS = 10.0
"""Seconds that a template may take."""
METHODS: dict[type, frozenset[str]] = {
    str: frozenset(
        (
            *("startswith", "endswith", "find", "rfind", "index", "count", "isdigit", "isalpha", "isspace"),
            *("strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "upper", "lower", "title", "capitalize"),
            *("split", "rsplit", "splitlines", "partition", "rpartition", "replace"),
        )
    ),
    dict: frozenset(("get", "items", "keys", "values")),
    list: frozenset(("index", "count")),
    tuple: frozenset(("index", "count")),
    **dict.fromkeys((int, float, bool, bytes), frozenset[str]()),
}
"""Methods of values that a template may use."""
PRINTED = (str, int, float, list, tuple, dict, Undefined, type(None))
"""Types that can be written, and be within lists and tables."""


def measured(value: Any) -> Any:
    """Return a value; raise SecurityError if it is larger than MAX_TEXT with all it contains."""
    size, left = 0, [value]
    while left:
        one = left.pop()
        if not isinstance(one, PRINTED):
            raise SecurityError(f"a {type(one).__name__} within a value")
        size += len(one) + 1 if isinstance(one, str) else 1
        if isinstance(one, list | tuple):
            size += len(one)
            left += one if size <= MAX_TEXT else ()
        elif isinstance(one, dict):
            size += 2 * len(one)
            left += [*one, *one.values()] if size <= MAX_TEXT else ()
        if size + len(left) > MAX_TEXT:
            raise SecurityError("a value that is too large")
    return value


def _measured_inside(value: Any) -> Any:
    """As ``measured``, but a value of another type, such as the items of a table, may pass as a whole."""
    return measured(value) if isinstance(value, PRINTED) else value


def _measured_filter(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose inputs and results are measured."""

    @wraps(function)
    def filtered(*values: Any, **named: Any) -> Any:
        # filters of the environment take it first
        given = [one if n == 0 and hasattr(function, "jinja_pass_arg") else _given(one) for n, one in enumerate(values)]
        return _measured_inside(function(*given, **{name: _given(one) for name, one in named.items()}))

    return filtered


def _given(value: Any) -> Any:
    """An input of a filter: measured, and nothing that would be written with all it contains."""
    if not isinstance(value, PRINTED) and not isinstance(value, Iterable):
        raise SecurityError(f"a {type(value).__name__} in a filter")
    return _measured_inside(value)


def _concatenated(parts: Iterable[str]) -> str:
    """The parts of a macro or block as one text."""
    found, size = [], 0
    for part in parts:
        size += len(part)
        if size > MAX_TEXT:
            raise SecurityError("a text that is too long")
        found.append(part)
    return "".join(found)


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, in which values are measured."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])
    concat = staticmethod(_concatenated)

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols], finalize=measured)
        filters: dict[str, Any] = {name: one for name, one in self.filters.items() if name in FILTERS}
        filters |= {"tojson": _to_json, "join": _join, "replace": _replace}
        self.filters = {name: _measured_filter(one) for name, one in filters.items()}
        self.filters[MEASURED] = _measured_inside
        self.globals |= {"raise_exception": _refuse, "dict": _table, "strftime_now": _today}
        for name in ("lipsum", "cycler", "joiner"):
            self.globals.pop(name, None)

    def compiled(self, source: str) -> Any:
        """Return the template of a source."""
        tree = self.parse(source)
        if any(tree.find_all((nodes.Import, nodes.FromImport, nodes.Include, nodes.Extends))):
            raise InputError("the chat template includes another one, which is not supported")
        if any(name.name in ("varargs", "kwargs") for name in tree.find_all(nodes.Name)):
            raise InputError("the chat template has a macro with any number of arguments, which is not supported")
        return self.from_string(_Measuring().visit(tree))

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """Compute an operation whose result may be large."""
        sizes = [len(side) if isinstance(side, str | list | tuple) else side for side in (left, right)]
        numbers = all(isinstance(size, int | float) for size in sizes)
        if operator == "+" and (not numbers or abs(sizes[0] + sizes[1]) <= MAX_TEXT):
            return measured(left + right)
        if operator == "*" and numbers and abs(sizes[0] * sizes[1]) <= MAX_REPEAT:
            return measured(left * right)
        if operator == "%" and not isinstance(left, str):
            return left % right
        raise SecurityError(f"{operator} of values that may become large")

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return whether a template may use an attribute."""
        allowed = next((METHODS[kind] for kind in type(obj).__mro__ if kind in METHODS), None)
        return super().is_safe_attribute(obj, attr, value) and (allowed is None or attr in allowed)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Refuse ``format``, which can make a long text of a short one."""
        return _no_format if super().wrap_str_format(value) is not None else None

    def call(self, context: Any, called: Any, *values: Any, **named: Any) -> Any:
        """Call a method, macro or function; the replacements in a text are counted before they are made."""
        owner = getattr(called, "__self__", None)
        if isinstance(owner, str) and getattr(called, "__name__", "") == "replace":
            return _replace(owner, *values, **named)
        return super().call(context, called, *values, **named)


MEASURED = "measured value"
"""The name of a filter that no template can write."""


class _Measuring(NodeTransformer):
    """Lists and tables are measured when they are made; a ~ b is a + b of two texts, whose sizes the sandbox sees."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        parts = [nodes.Filter(self.visit(one), "string", [], [], None, None, lineno=node.lineno) for one in node.nodes]
        joined: nodes.Expr = parts[0]
        for part in parts[1:]:
            joined = nodes.Add(joined, part, lineno=node.lineno)
        return joined

    def _measure(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        if getattr(node, "ctx", "load") != "load":  # a tuple of names that are set
            return node  # type: ignore[no-any-return]
        return nodes.Filter(node, MEASURED, [], [], None, None, lineno=node.lineno)

    visit_List = visit_Tuple = visit_Dict = _measure


def _no_format(*values: Any, **named: Any) -> str:
    raise SecurityError("format of values that may become large")


def _table(*values: Any, **named: Any) -> Any:
    return measured(dict(*values, **named))


def _join(values: Any, separator: str = "", attribute: str | None = None) -> str:
    parts = [str(measured(value if attribute is None else value[attribute])) for value in values]
    if sum(map(len, parts)) + len(str(separator)) * len(parts) > MAX_TEXT:
        raise SecurityError("join of values that may become large")
    return str(separator).join(parts)


def _replace(given: Any, old: str, new: str, count: int = -1) -> str:
    text = str(measured(given))
    if len(text) + text.count(str(old)) * len(str(new)) > MAX_TEXT:
        raise SecurityError("replace of values that may become large")
    return text.replace(str(old), str(new), count)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=min(indent, 8) if indent else None)


def _refuse(message: str) -> NoReturn:
    raise InputError(f"the chat template refuses these messages: {str(measured(message))[:200]}")


def _today(form: str) -> str:
    """The date and time of now, as ``strftime`` writes it; its codes are single letters."""
    if not isinstance(form, str) or not DATE_FORM.fullmatch(form):
        raise SecurityError("a form of a date with other codes than letters")
    return datetime.now().strftime(form)


class limited:
    """Raises InputError when a template executes too many lines or takes too long, in this thread."""

    def __init__(self, lines: int) -> None:
        self._left, self._until = lines, time.monotonic() + MAX_SECONDS
        self._before: Callable[..., Any] | None = None

    def _count(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith("<template>"):
            return None
        self._left -= 1
        if self._left < 0 or time.monotonic() > self._until:
            raise InputError("the chat template runs too long")
        return self._count

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._count)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)
