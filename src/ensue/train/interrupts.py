"""Ctrl-C and SIGTERM as requests to stop at the next step."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

Handler = Callable[[int, FrameType | None], Any] | int


@contextmanager
def handle_signal(number: int, handler: Handler) -> Iterator[None]:
    """Handle a signal inside the block; outside the main thread, where Python forbids it, do nothing."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGTERM inside the block, as on Ctrl-C."""
    with handle_signal(signal.SIGTERM, signal.default_int_handler):
        yield


class Interrupts:
    """Records the first SIGINT or SIGTERM inside the block in ``signal``; the second raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.signal = ""
        self._handlers = ExitStack()

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers.enter_context(handle_signal(number, self._record))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._handlers.close()

    def _record(self, number: int, frame: FrameType | None) -> None:
        if self.signal:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number).name
