"""Limits on connections: how many there may be, and how long the server waits for a client.

idle       a client that sends no request within ``IDLE_TIMEOUT`` is disconnected
stalled    a client that reads nothing of its response for ``STALL_TIMEOUT`` is dropped, with what it has not read
slots      connections that have not shown the key (all of them, if there is none) are limited, in total and for each
           client address. Where there is no slot left, the one that has kept the server waiting longest makes room.
           Connections that have shown the key have slots of their own.
pieces     a body that arrives in too many pieces is refused
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Iterable
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ensue.serve.client_address import client_address
from ensue.serve.errors import ApiError, error_body
from ensue.serve.request_queue import RETRY_AFTER

MAX_CONNECTIONS = 1000
"""Open connections without the key, and as many again with it; further clients get status 503."""
MAX_PER_CLIENT = 500
"""Open connections of one client address, without the key."""
IDLE_TIMEOUT = 30.0
"""Seconds within which the head of the next request must arrive."""
STALL_TIMEOUT = 30.0
"""Seconds within which a client must read something of its response."""
CHECKS = 10
"""Checks of a connection within the shorter timeout."""
GRACE = 2.0
"""Seconds that a connection may keep the server waiting before it can lose its slot to another."""


RESET = struct.pack("ii", 1, 0)
"""Linger for 0 seconds: what is unsent is thrown away, and the client sees a reset."""
WRITE_BUFFER = 1 << 14
"""Bytes of a response that wait for the kernel before the app has to wait."""


MAX_HEAD = 1 << 16
"""Bytes of a request line with its headers."""
MAX_PIECES = 4096
"""Pieces in which a body may arrive: each costs the event loop some microseconds, however short it is."""


class LimitedConnection(h11.Connection):
    """h11's parser, which refuses a body in too many pieces."""

    pieces = 0

    def next_event(self) -> Any:
        """The next event of the client."""
        event = super().next_event()
        if isinstance(event, h11.Request):
            self.pieces = 0
        elif isinstance(event, h11.Data):
            self.pieces += 1
            if self.pieces > MAX_PIECES:
                raise h11.RemoteProtocolError("the body has too many pieces")
        return event


class CountingTransport:
    """A transport that tells how much of what was written has been sent."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport, self._written = transport, 0

    def write(self, data: bytes) -> None:
        """Write, and count."""
        self._written += len(data)
        self._transport.write(data)

    @property
    def unsent(self) -> int:
        """Bytes that the client has made no room for yet."""
        return self._transport.get_write_buffer_size()

    @property
    def sent(self) -> int:
        """Bytes sent so far."""
        return self._written - self.unsent

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class LimitedProtocol(H11Protocol):
    """uvicorn's HTTP protocol with limits on connections."""

    transport: CountingTransport  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a connection, or answer 503 and close it."""
        transport.set_write_buffer_limits(WRITE_BUFFER)
        super().connection_made(CountingTransport(transport))  # type: ignore[arg-type]
        self.conn = LimitedConnection(h11.SERVER, MAX_HEAD)
        self.app_state = {**self.app_state, "connection": self}
        self.address = client_address(self.client)
        self.trusted = False
        """True once a request on this connection has shown the key."""
        self.dropped = False
        self._sent = 0
        self._turn_began = self._progress_at = self.loop.time()
        self._start_timer()
        if not self._find_slot():
            self.transport.write(_too_many_connections())
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection; a timer would keep it in memory."""
        self._timer.cancel()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def on_response_complete(self) -> None:
        """Wait for the next request on this connection."""
        self._turn_began = self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, or only close the connection if a response has begun; the app sends no more."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        self.transport.close()
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def trust(self) -> None:
        """Give the connection a slot among those that have shown the key, if there is one."""
        self.trusted = self.trusted or sum(other.trusted for other in self._others()) < MAX_CONNECTIONS

    @property
    def waiting_since(self) -> float | None:
        """Since when the server waits for the client to send or to read; None while it is the server's turn."""
        if self.transport.unsent:
            return self._progress_at
        idle = self.cycle is None or self.cycle.response_complete or self.cycle.more_body
        return self._turn_began if idle else None

    def _others(self) -> Iterable[LimitedProtocol]:
        return (other for other in self.connections if isinstance(other, LimitedProtocol) and other is not self)

    def _find_slot(self) -> bool:
        """True if there is a slot for this connection, or another could be dropped for it."""
        for address, most in ((self.address, MAX_PER_CLIENT), (None, MAX_CONNECTIONS)):
            strangers = [other for other in self._others() if not (other.trusted or other.dropped)]
            group = [other for other in strangers if address in (other.address, None)]
            if len(group) >= most and not _drop_one(group):
                return False
        return True

    def drop(self) -> None:
        """Disconnect at once; ``close`` would wait until the client has read everything, and so would the kernel."""
        self.dropped = True
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self.transport.abort()

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(min(IDLE_TIMEOUT, STALL_TIMEOUT) / CHECKS, self._check)

    def _check(self) -> None:
        """Close the connection if it is idle, and drop it if its client does not read."""
        now, sent = self.loop.time(), self.transport.sent
        if sent > self._sent or not self.transport.unsent:
            self._sent, self._progress_at = sent, now
        if now - self._progress_at >= STALL_TIMEOUT:
            self.drop()
            return
        idle = self.cycle is None or self.cycle.response_complete
        if idle and now - self._turn_began >= IDLE_TIMEOUT and not self.transport.is_closing():
            self.transport.close()
        self._start_timer()


def _drop_one(connections: Iterable[LimitedProtocol]) -> bool:
    """Drop the connection that has kept the server waiting longest; False if none has for long."""
    waiting = [(since, id(one), one) for one in connections if (since := one.waiting_since) is not None]
    since, _, longest = min(waiting, default=(float("inf"), 0, None))
    if longest is None or longest.loop.time() - since < GRACE:
        return False
    longest.drop()
    return True


def _too_many_connections() -> bytes:
    """A whole 503 response, sent before any request is read."""
    body = error_body(ApiError(503, "too many open connections")).model_dump_json().encode()
    head = f"Retry-After: {RETRY_AFTER}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"HTTP/1.1 503 Service Unavailable\r\n{head}\r\nConnection: close\r\n\r\n".encode() + body
