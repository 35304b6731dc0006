"""Conversations with a language model that has a chat template.

What was read stays in the state: a new message is read after it, and not the whole conversation again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ensue.core.errors import InputError
from ensue.core.files import write_text
from ensue.core.run_folder import RunFolder
from ensue.data.chat_template import ChatTemplate, Message
from ensue.data.tokenizers.subword import SubwordTokenizer
from ensue.runs.run import Run
from ensue.runs.stream_detokenizer import StreamDetokenizer
from ensue.search.prefix_cache import Prefix, shared_prefix
from ensue.search.sampling import Sampling, next_tokens
from ensue.tasks.settings import Settings

LANGUAGE = "language"
CHAT = "chat"
"""The key of config.json: the names of the tokens that begin and end a text, and those that end an answer."""


@dataclass
class Answer:
    """An answer, as far as it was drawn."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    ended: str = ""
    """Why it ended: stop (an end token), length (the most tokens), or empty while it goes on."""


def can_chat(run: Run) -> bool:
    """Return whether a run has a chat template."""
    return run.config.get(CHAT) is not None and run.folder.chat.exists() and isinstance(run.tokenizer, SubwordTokenizer)


def chat_template(run: Run) -> ChatTemplate:
    """Return the chat template of a run; raise InputError if it has none."""
    if not can_chat(run) or not isinstance(run.tokenizer, SubwordTokenizer):
        hint = "`ensue get smollm2` makes one that can"
        raise InputError("has no chat template, so it cannot chat", where=str(run.folder.path), hint=hint)
    described, path = run.config[CHAT], run.folder.chat
    run.folder.verify(path.name)
    _special_tokens(run, [described["begin"], described["end"], *described["stop"]])
    try:
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot be read as UTF-8", where=str(path), hint="the folder may be damaged") from error
    return ChatTemplate(source, run.tokenizer, described["begin"], described["end"])


def inherited_chat(settings: Settings, folder: RunFolder) -> dict[str, Any]:
    """Copy the chat template of the run that weights come from into a run's folder, and return its facts.

    Both have the same tokenizer. A template that is there already is kept.
    """
    path = settings.run.begin_with
    source = folder.base or (RunFolder(Path(path)) if path else None)
    if source is None or settings.run.task != LANGUAGE or not (source.config.exists() and source.chat.exists()):
        return {}
    described = source.read_config().get(CHAT)
    if described is None:
        return {}
    if not folder.chat.exists():
        write_text(folder.chat, source.chat.read_text(encoding="utf-8"))
    return {CHAT: described}


def stop_tokens(run: Run) -> frozenset[int]:
    """Return the tokens that end a text: the end token, unless it ends every line, and those that end an answer."""
    end = frozenset() if run.tokenizer.lines else frozenset([run.tokenizer.end])
    return end | _special_tokens(run, run.config[CHAT]["stop"]) if CHAT in run.config else end


def _special_tokens(run: Run, names: Iterable[str]) -> frozenset[int]:
    """Return the special tokens of these names; raise InputError if the tokenizer lacks one."""
    named: Mapping[str, int] = getattr(run.tokenizer, "named", {})
    wanted = set(names) - {""}
    if unknown := sorted(wanted - set(named)):
        what = f"its tokenizer has no special token {unknown[0]!a}"
        raise InputError(what, where=str(run.folder.config), hint="the folder may be damaged")
    return frozenset(named[name] for name in wanted)


class Chat:
    """A conversation."""

    def __init__(self, run: Run, system: str = "") -> None:
        self.run, self.template = run, chat_template(run)
        self.stops = stop_tokens(run)
        self.messages: list[Message] = [Message("system", system)] if system else []
        self.answer = Answer()
        self._read: list[int] = []
        self._state: Any = None

    @property
    def context(self) -> int | None:
        """The number of tokens that the model sees at once."""
        size: int | None = self.run.model.traits.context
        return size

    def say(self, text: str, how: Sampling) -> Iterator[str]:
        """Send a message and yield the answer piece by piece; it is in ``answer``, and at the end in ``messages``.

        A caller that stops early keeps what was drawn as the answer.
        """
        messages = [*self.messages, Message("user", text)]
        prompt = self.template.tokens(messages).tolist()
        if not prompt:
            raise InputError("the chat template makes no prompt of these messages", where=str(self.run.folder.chat))
        self.messages = messages
        self.answer = answer = Answer()
        pieces = StreamDetokenizer(self.run.tokenizer, prompt)
        generator = torch.Generator().manual_seed(how.seed + len(self.messages))
        try:
            with torch.no_grad():
                logits = self._logits(prompt)
                while not answer.ended:
                    token = int(next_tokens(logits.double().log_softmax(-1), how, generator))
                    if token in self.stops:
                        answer.ended = "stop"
                        continue
                    answer.tokens.append(token)
                    if piece := pieces.add(token):
                        yield piece
                    if len(answer.tokens) == how.tokens:
                        answer.ended = "length"
                    else:
                        logits = self._logits([*self._read, token])
            if piece := pieces.finish():
                yield piece
        finally:
            answer.text = pieces.text
            self.messages.append(Message("assistant", answer.text))

    @property
    def used(self) -> int:
        """The number of tokens of the conversation so far."""
        return len(self._read)

    def reset(self) -> None:
        """Forget all messages but that of the system."""
        self.messages = [one for one in self.messages[:1] if one.role == "system"]

    def set_system(self, text: str) -> None:
        """Replace the system prompt, or remove it if ``text`` is empty; the conversation stays."""
        rest = [one for number, one in enumerate(self.messages) if number or one.role != "system"]
        self.messages = [*([Message("system", text)] if text else []), *rest]

    def _logits(self, tokens: list[int]) -> torch.Tensor:
        """The logits (1, V) after these tokens; those that were read already are not read again."""
        shared = None if self._state is None else shared_prefix(Prefix(self._read, self._state), tokens)
        if shared is None:
            known, state = max(0, len(tokens) - (self.context or len(tokens))), self.run.model.start(1)
        else:
            known, state = len(shared.tokens), shared.state
        new = torch.tensor([tokens[known:]], dtype=torch.long)
        output = self.run.model(new, state, want=("last",))
        self._state, self._read = output.state, tokens
        logits: torch.Tensor = output.logits[:, -1].cpu()
        return logits
