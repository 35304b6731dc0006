"""Worker processes that encode parts of a text, one per core.

Each is a fresh interpreter, ``python -m ensue.data.workers``, which receives the tokenizer and then requests through
pipes. Nothing is forked, since the parent may have threads of torch or of the tokenizers library, and a script need not
be importable. A worker ends when its parent does.

Threads would not help: words are looked up in Python, under the global interpreter lock. The library's own threads are
switched off, as they would compete with the workers for cores.
"""

from __future__ import annotations

import json
import os
import queue
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import fields
from types import TracebackType
from typing import IO, Any, Self

import numpy as np

from ensue.core.errors import InputError
from ensue.data.encoding import Encoded, encode_parts, token_dtype
from ensue.data.text_pieces import Part
from ensue.data.tokenizers.protocol import Tokenizer

BUNDLES_AHEAD = 2
"""Bundles per worker that are read ahead, which bounds memory."""
_FACTS = [field.name for field in fields(Encoded) if field.name != "tokens"]
_LENGTH = struct.Struct("<Q")
_PART = struct.Struct("<Q??")


def can_share(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer can be copied to another process; not if it numbers new words as they occur."""
    from ensue.data.tokenizers.registry import KINDS, restore_tokenizer

    if tokenizer.kind not in (*KINDS, "gpt2"):
        return False
    return type(restore_tokenizer(json.loads(json.dumps(tokenizer.state())))) is type(tokenizer)


class _Lost(Exception):
    """A worker process has ended."""


class _Worker:
    """The parent's handle of one worker process."""

    def __init__(self, state: bytes) -> None:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ensue.data.workers"],  # -P: no module of the folder one happens to be in
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is meant for the one who asks
        )
        self._begin = state

    def ask(self, bundle: Sequence[Part], dtype: np.dtype[Any]) -> Encoded:
        """Encode a bundle; raise _Lost if the process has ended."""
        ask, answer = self._process.stdin, self._process.stdout
        assert ask is not None and answer is not None
        try:
            if self._begin:
                _send(ask, self._begin)
                self._begin = b""
            _send(ask, *(field for part in bundle for field in _packed(part)))
            ask.flush()
            facts = json.loads(_receive(answer))
            if "error" in facts:
                raise InputError(facts["error"])
            tokens = np.frombuffer(_receive(answer), dtype)
        except (EOFError, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise _Lost from error
        return Encoded(tokens, **facts)

    def end(self) -> None:
        """Kill the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:  # the process no longer reads
                continue


class Workers:
    """Worker processes with the same tokenizer, as a context manager that ends them on exit."""

    def __init__(self, tokenizer: Tokenizer, count: int) -> None:
        self._tokenizer, self._dtype = tokenizer, token_dtype(tokenizer)
        self._alone, self._closing = threading.Lock(), False
        self._free: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        state = json.dumps(tokenizer.state()).encode()
        self._workers = [_Worker(state) for _ in range(count)]
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        for worker in self._workers:
            worker.end()
        self._threads.shutdown(cancel_futures=True)

    def encode(self, bundles: Iterable[Sequence[Part]]) -> Iterator[Encoded]:
        """Encode bundles, in order."""
        asked: deque[Future[Encoded]] = deque()
        for bundle in bundles:
            asked.append(self._threads.submit(self._one, bundle))
            if len(asked) > BUNDLES_AHEAD * len(self._workers):
                yield asked.popleft().result()
        while asked:
            yield asked.popleft().result()

    def _one(self, bundle: Sequence[Part]) -> Encoded:
        """Encode one bundle on a free worker, or in this process if a worker was lost."""
        worker = self._free.get()
        try:
            if worker is not None:
                return worker.ask(bundle, self._dtype)
        except _Lost:
            worker = None
            if self._closing:
                raise
        finally:
            self._free.put(worker)
        with self._alone:  # tokenizers have caches, which are not thread-safe
            return encode_parts(self._tokenizer, bundle)


def _packed(part: Part) -> tuple[bytes, bytes]:
    text, opens, closes = part
    data = text.encode()
    return _PART.pack(len(data), opens, closes), data


def _unpacked(message: bytes) -> Iterator[Part]:
    at = 0
    while at < len(message):
        length, opens, closes = _PART.unpack_from(message, at)
        at += _PART.size + length
        yield message[at - length : at].decode(), opens, closes


def _send(pipe: IO[bytes], *fields: bytes) -> None:
    pipe.write(_LENGTH.pack(sum(map(len, fields))))
    for field in fields:
        pipe.write(field)


def _receive(pipe: IO[bytes]) -> bytes:
    length = pipe.read(_LENGTH.size)
    if len(length) < _LENGTH.size:
        raise EOFError
    found = pipe.read(_LENGTH.unpack(length)[0])
    if len(found) < _LENGTH.unpack(length)[0]:
        raise EOFError
    return found


def serve(ask: IO[bytes], answer: IO[bytes]) -> None:
    """Run as a worker until the parent closes the pipe."""
    from ensue.data.tokenizers.registry import restore_tokenizer

    try:
        tokenizer = restore_tokenizer(json.loads(_receive(ask)))
        while True:
            try:
                found = encode_parts(tokenizer, _unpacked(_receive(ask)))
            except InputError as error:
                _send(answer, json.dumps({"error": str(error)}).encode())
            else:
                _send(answer, json.dumps({name: getattr(found, name) for name in _FACTS}).encode())
                _send(answer, found.tokens.tobytes())
            answer.flush()
    except (EOFError, BrokenPipeError):
        return


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
