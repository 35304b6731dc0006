"""Chat templates: how the messages of a conversation become one prompt (Jinja, as models publish them).

A template is a small program of whoever made the model, so it runs in Jinja's sandbox, with a limit on the lines it
executes and on what it writes. The names of special tokens that it writes become those tokens. In the messages they are
plain text: a user cannot end a message, or begin one as somebody else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jinja2 import TemplateError

from ensue.core.errors import InputError
from ensue.data.template_sandbox import MAX_LINES, Sandbox, limited
from ensue.data.tokenizers.subword import SubwordTokenizer

MAX_TEMPLATE = 1 << 16
"""The longest template, in characters."""
MAX_OUTPUT = 1 << 16
"""Characters that a template may write beyond those of the messages."""
MARKS = "\ue000\ue001\ue002\ue003"
"""Characters that mark the name of a special token in a message, one of which the messages do not have."""


class Message(NamedTuple):
    """A message of a conversation."""

    role: str
    """system, user or assistant."""
    content: str


class ChatTemplate:
    """A template and the special tokens that it may write."""

    def __init__(self, source: str, tokenizer: SubwordTokenizer, begin: str = "", end: str = "") -> None:
        if len(source) > MAX_TEMPLATE:
            raise InputError(f"the chat template has {len(source):,} characters, at most {MAX_TEMPLATE:,} are allowed")
        self.source, self._tokenizer = source, tokenizer
        self._given = {"bos_token": begin, "eos_token": end}
        names = sorted((name for name in tokenizer.named if len(name) > 1), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, names)) or "(?!)")
        try:
            self._template = Sandbox().compiled(source)
        except (TemplateError, RecursionError, SyntaxError, MemoryError) as error:
            raise InputError(f"the chat template cannot be used: {str(error)[:200]}") from error

    def text(self, messages: Sequence[Message], reply: bool = True) -> str:
        """Return the prompt as text; with ``reply`` it ends where the assistant's answer begins."""
        values: dict[str, Any] = {"messages": [one._asdict() for one in messages], "add_generation_prompt": reply}
        values |= {"tools": None, "documents": None}  # there are none, which some templates ask
        limit = MAX_OUTPUT + 2 * sum(len(one.content) + len(one.role) for one in messages)
        try:
            with limited(MAX_LINES * (1 + len(messages))):
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
            before, after = self._tokenizer.strips[found[0]]
            plain = text[at : found.start()]
            tokens += [
                self._plain(plain.rstrip() if before else plain, mark, at == 0),
                np.array([self._tokenizer.named[found[0]]], np.int32),
            ]
            at = found.end() + (len(text[found.end() :]) - len(text[found.end() :].lstrip()) if after else 0)
        return np.concatenate([*tokens, self._plain(text[at:], mark, at == 0)])

    def _plain(self, text: str, mark: str, first: bool) -> np.ndarray:
        text = text.replace(mark, "") if mark else text
        if not text:
            return np.zeros(0, np.int32)
        return self._tokenizer.encode(text) if first else self._tokenizer.encode_after(text)


def messages_from(given: Sequence[Mapping[str, Any]], where: str = "") -> list[Message]:
    """Return messages from JSON; raise InputError for anything else."""
    found = []
    for one in given:
        role, content = (one.get(name) if isinstance(one, Mapping) else None for name in ("role", "content"))
        if not isinstance(role, str) or not isinstance(content, str):
            raise InputError("a message needs a role and a content, both text", where=where)
        found.append(Message(role, content))
    return found
