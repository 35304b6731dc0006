"""Connections, as uvicorn has them, that may not be kept for nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ensue.serve.errors import Refused, failure
from ensue.serve.request_queue import RETRY

MOST = 1000
"""That are open at once; whoever comes then is told to come back."""
PATIENCE = 30.0
"""Seconds in which a request must have begun: its head be there."""


class Patient(H11Protocol):
    """A connection on which a request comes soon, or which is closed: those that say nothing would keep others out."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has come."""
        super().connection_made(transport)
        if len(self.connections) > MOST:
            transport.write(_full())
            transport.close()
        else:
            self._watch()

    def on_response_complete(self) -> None:
        """An answer has gone out: another request may come."""
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        self.loop.call_later(PATIENCE, self._check, self.cycle)

    def _check(self, before: Any) -> None:
        """Close, where nothing has come since."""
        if self.cycle is before and not self.transport.is_closing():
            self.transport.close()


def _full() -> bytes:
    """What is told to somebody for whom there is no room, before anything is read."""
    body = failure(Refused(503, "too many connections are open")).model_dump_json().encode()
    head = f"Retry-After: {RETRY}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close"
    return f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\n\r\n".encode() + body
