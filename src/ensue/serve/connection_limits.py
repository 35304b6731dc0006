"""Limits on open connections: how many there may be, and how long one may be idle."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ensue.serve.errors import ApiError, error_body
from ensue.serve.request_queue import RETRY_AFTER

MAX_CONNECTIONS = 1000
"""Open connections; further clients get status 503."""
IDLE_TIMEOUT = 30.0
"""Seconds within which the head of the next request must arrive."""


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol that closes idle connections, and refuses connections beyond the limit."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or answer 503 and close it."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.write(_too_many_connections())
            transport.close()
        else:
            self._start_idle_timer()

    def on_response_complete(self) -> None:
        """Wait for the next request on this connection."""
        super().on_response_complete()
        self._start_idle_timer()

    def _start_idle_timer(self) -> None:
        self.loop.call_later(IDLE_TIMEOUT, self._close_if_idle, self.cycle)

    def _close_if_idle(self, last_cycle: Any) -> None:
        """Close the connection if no request has started since the timer."""
        if self.cycle is last_cycle and not self.transport.is_closing():
            self.transport.close()


def _too_many_connections() -> bytes:
    """A whole 503 response, sent before any request is read."""
    body = error_body(ApiError(503, "too many open connections")).model_dump_json().encode()
    head = f"Retry-After: {RETRY_AFTER}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\nConnection: close\r\n\r\n".encode() + body
