"""Who may ask, and how much: what is checked before a request is read.

Host      a name that this server has; else a page of another site could reach it under its own name (DNS rebinding)
key       where one is set, as a bearer token or as the cookie that the page's form sets
size      of the body, whatever its header says
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Iterable
from typing import Any

from ensue.serve.refusals import Refused, answer

MOST_BYTES = 1 << 20
COOKIE = "ensue-key"
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
OPEN = ("/health",)
"""Paths that need no key: they say nothing."""


class Guard:
    """Around an app, for every path."""

    def __init__(
        self, app: Any, *, hosts: Iterable[str], numbers: bool = False, key: str = "", most: int = MOST_BYTES
    ) -> None:
        self.app, self.hosts, self.numbers, self.key, self.most = app, frozenset(hosts), numbers, key, most

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope["path"], headers)
        if refused is not None:
            await answer(refused)(scope, receive, self._dressed(send))
            return
        await self.app(scope, self._measured(receive), self._dressed(send))

    def _refusal(self, path: str, headers: dict[str, str]) -> Refused | None:
        """Why a request is not let through, if it is not."""
        name = _name(headers.get("host", ""))
        if name not in self.hosts and not (self.numbers and _is_number(name)):  # nobody can point a number elsewhere
            return Refused(421, "this server has another name")
        if self.key and path not in OPEN and not self._knows(headers):
            return Refused(401, "this server wants its key: Authorization: Bearer …")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.most:
            return Refused(413, f"a request has at most {self.most:,} bytes")
        return None

    def _knows(self, headers: dict[str, str]) -> bool:
        """Whether the key is there."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        known = [given] if kind.lower() == "bearer" else []
        pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
        known += [value for name, _, value in pairs if name == COOKIE]
        return any(hmac.compare_digest(one.encode("latin-1"), self.key.encode()) for one in known)

    def _measured(self, receive: Any) -> Any:
        """The body, as long as it is not too long."""
        seen = 0

        async def measured() -> Any:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.most:
                raise Refused(413, f"a request has at most {self.most:,} bytes")
            return message

        return measured

    def _dressed(self, send: Any) -> Any:
        """Answers with the headers that keep a browser from doing more than it should."""

        async def dressed(message: Any) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        return dressed


def _is_number(name: str) -> bool:
    """Whether a host is an address and no name.

    >>> _is_number("192.0.2.1"), _is_number("[::1]"), _is_number("a.b")
    (True, True, False)
    """
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def _name(host: str) -> str:
    """A host without its port.

    >>> _name("localhost:8000"), _name("[::1]:80"), _name("[::1]"), _name("a.b")
    ('localhost', '[::1]', '[::1]', 'a.b')
    """
    return host.lower() if host.endswith("]") or ":" not in host else host.lower().rpartition(":")[0]
