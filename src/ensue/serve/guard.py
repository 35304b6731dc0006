"""Who may ask, and how much: what is checked before a request is read.

Host      a name that this server has; else a page of another site could reach it under its own name (DNS rebinding)
Origin    of a page that asks: this server's own, or none
key       where one is set, as a bearer token or as the cookie that the page's form sets
size      of the body, whatever its header says, and the time that it takes
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
from collections.abc import Iterable
from html import escape
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import parse_qs

from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.requests import ClientDisconnect

from ensue.serve.errors import Refused, answer

MOST_BYTES = 1 << 20
COOKIE = "ensue-key"
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
DOOR = "/key"
"""Where the form that asks for the key is sent to."""
SLOW = 1.0
"""Seconds that somebody with a wrong key waits."""
PATIENCE = 30.0
"""Seconds that a client has for its body, and for taking each piece of an answer."""


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
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # the server's protocol leaves out the body
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        receive, send = self._measured(receive), self._dressed(send)
        refused = self._refusal(headers)
        if refused is None and self.key and scope["path"] == DOOR and scope["method"] == "POST":
            await (await self._opened(receive))(scope, receive, send)
        elif refused is None and self.key and not self._knows(headers):
            asks = scope["path"] == "/" and "text/html" in headers.get("accept", "")
            refused = Refused(401, "this server wants its key: Authorization: Bearer …")
            await (key_form() if asks else answer(refused))(scope, receive, send)
        elif refused is not None:
            await answer(refused)(scope, receive, send)
        else:
            try:
                await self.app(scope, receive, send)
            except ClientDisconnect:
                logging.getLogger("ensue.serve").debug("a client did not take its answer, and was left")

    def _refusal(self, headers: dict[str, str]) -> Refused | None:
        """Why a request is not let through, whoever sends it."""
        host = headers.get("host", "").lower()
        name = _name(host)
        if name not in self.hosts and not (self.numbers and _is_number(name)):  # nobody can point a number elsewhere
            return Refused(421, "this server has another name")
        if "origin" in headers and headers["origin"].lower() not in (f"http://{host}", f"https://{host}"):
            return Refused(403, "pages of other sites are not answered")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.most:
            return Refused(413, f"a request has at most {self.most:,} bytes")
        return None

    def _knows(self, headers: dict[str, str]) -> bool:
        """Whether the key is there: itself as a bearer token, or what the form set as a cookie."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
        cookies = [value for name, _, value in pairs if name == COOKIE]
        return (kind.lower() == "bearer" and _same(given.encode("latin-1"), self.key)) or any(
            _same(value.encode("latin-1"), self._token) for value in cookies
        )

    @property
    def _token(self) -> str:
        """What the cookie holds: it opens this server as the key does, and does not tell the key."""
        return hmac.new(self.key.encode(), b"ensue page", "sha256").hexdigest()

    async def _opened(self, receive: Any) -> Response:
        """The answer to the form: the page and a cookie, or the form again."""
        body, more = b"", True
        try:
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
        except Refused as refused:
            return answer(refused)
        given = parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0]
        if not _same(given.encode("utf-8", "surrogateescape"), self.key):
            await asyncio.sleep(SLOW)
            return key_form("That is not the key.")
        answered = RedirectResponse("/", status_code=303)
        answered.set_cookie(COOKIE, self._token, httponly=True, samesite="strict", path="/")
        return answered

    def _measured(self, receive: Any) -> Any:
        """The body, as long as it is not too long, in size or in time."""
        seen, whole, until = 0, False, asyncio.get_running_loop().time() + PATIENCE

        async def measured() -> Any:
            nonlocal seen, whole
            try:
                async with asyncio.timeout_at(None if whole else until):
                    message = await receive()
            except TimeoutError as error:
                raise Refused(408, "the body took too long") from error
            seen += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if seen > self.most:
                raise Refused(413, f"a request has at most {self.most:,} bytes")
            return message

        return measured

    def _dressed(self, send: Any) -> Any:
        """Answers with the headers that keep a browser from doing more than it should."""

        async def dressed(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            try:
                async with asyncio.timeout(PATIENCE):
                    await send(message)
            except TimeoutError as error:  # who does not take an answer is left
                raise ClientDisconnect from error

        return dressed


def key_form(said: str = "") -> Response:
    """The form that asks for the key."""
    page = Template((Path(__file__).parent / "key.html").read_text(encoding="utf-8")).substitute(said=escape(said))
    return HTMLResponse(page, status_code=401, headers={"cache-control": "no-store"})


def _same(given: bytes, wanted: str) -> bool:
    return hmac.compare_digest(given, wanted.encode())


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
