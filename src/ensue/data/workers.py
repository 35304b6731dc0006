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
from typing import IO, Any, Self

import numpy as np

from ensue.core.errors import InputError
from ensue.data.encoding import EncodedTexts, encode_parts, token_dtype
from ensue.data.text_pieces import Part
from ensue.data.tokenizers.protocol import Tokenizer

BUNDLES_AHEAD = 2
"""Bundles per worker that are read ahead, which bounds memory."""
_FACTS = [field.name for field in fields(EncodedTexts) if field.name != "tokens"]
_LENGTH = struct.Struct("<Q")
_PART = struct.Struct("<Q??")


def can_share(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer can be copied to another process; not if it numbers new words as they occur."""
    from ensue.data.tokenizers.registry import KINDS, restore_tokenizer

    if tokenizer.kind not in (*KINDS, "gpt2"):
        return False
    return type(restore_tokenizer(json.loads(json.dumps(tokenizer.state())))) is type(tokenizer)


class _WorkerEnded(Exception):
    """A worker process has ended."""


class _Worker:
    """The parent's handle of one worker process."""

    def __init__(self, state: bytes) -> None:
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ensue.data.workers"],  # -P: no modules of the current folder
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the parent only
        )
        self._state = state

    def encode(self, bundle: Sequence[Part], dtype: np.dtype[Any]) -> EncodedTexts:
        """Encode a bundle; raise _WorkerEnded if the process has ended."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None and answers is not None
        try:
            if self._state:
                _send(requests, self._state)
                self._state = b""
            _send(requests, *(field for part in bundle for field in _pack(part)))
            requests.flush()
            facts = json.loads(_receive(answers))
            if "error" in facts:
                raise InputError(facts["error"])
            tokens = np.frombuffer(_receive(answers), dtype)
        except (EOFError, OSError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise _WorkerEnded from error
        return EncodedTexts(tokens, **facts)

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
        self._lock, self._closing = threading.Lock(), False
        self._free: queue.SimpleQueue[_Worker | None] = queue.SimpleQueue()
        state = json.dumps(tokenizer.state()).encode()
        self._workers = [_Worker(state) for _ in range(count)]
        for worker in self._workers:
            self._free.put(worker)
        self._threads = ThreadPoolExecutor(count)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._closing = True
        for worker in self._workers:
            worker.end()
        self._threads.shutdown(cancel_futures=True)

    def encode(self, bundles: Iterable[Sequence[Part]]) -> Iterator[EncodedTexts]:
        """Encode bundles, in order."""
        waiting: deque[Future[EncodedTexts]] = deque()
        for bundle in bundles:
            waiting.append(self._threads.submit(self._encode_bundle, bundle))
            if len(waiting) > BUNDLES_AHEAD * len(self._workers):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _encode_bundle(self, bundle: Sequence[Part]) -> EncodedTexts:
        """Encode one bundle on a free worker, or in this process if a worker was lost."""
        worker = self._free.get()
        try:
            if worker is not None:
                return worker.encode(bundle, self._dtype)
        except _WorkerEnded:
            worker = None
            if self._closing:
                raise
        finally:
            self._free.put(worker)
        with self._lock:  # tokenizers have caches, which are not thread-safe
            return encode_parts(self._tokenizer, bundle)


def _pack(part: Part) -> tuple[bytes, bytes]:
    text, opens, closes = part
    data = text.encode()
    return _PART.pack(len(data), opens, closes), data


def _unpack(message: bytes) -> Iterator[Part]:
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
    header = pipe.read(_LENGTH.size)
    if len(header) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(header)
    message = pipe.read(length)
    if len(message) < length:
        raise EOFError
    return message


def serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Run as a worker until the parent closes the pipe."""
    from ensue.data.tokenizers.registry import restore_tokenizer

    try:
        tokenizer = restore_tokenizer(json.loads(_receive(requests)))
        while True:
            try:
                encoded = encode_parts(tokenizer, _unpack(_receive(requests)))
            except InputError as error:
                _send(answers, json.dumps({"error": str(error)}).encode())
            else:
                _send(answers, json.dumps({name: getattr(encoded, name) for name in _FACTS}).encode())
                _send(answers, encoded.tokens.tobytes())
            answers.flush()
    except (EOFError, BrokenPipeError):
        return


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
