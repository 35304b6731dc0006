"""Security checks before a request reaches the app.

Host      must be a name of this server; otherwise another site could reach it by DNS rebinding
Origin    must be this server's own, or missing
key       if one is set: as a bearer token, or as the cookie that the key form sets
body      has a maximum size, whatever its header says, and a timeout
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

from ensue.serve.errors import ApiError, error_response

MAX_BODY_BYTES = 1 << 20
COOKIE = "ensue-key"
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
KEY_PATH = "/key"
"""The form that asks for the key is posted here."""
WRONG_KEY_DELAY = 1.0
"""Seconds before the answer to a wrong key."""
IO_TIMEOUT = 30.0
"""Seconds that a client has to send its body, and to receive each part of a response."""


class SecurityMiddleware:
    """Checks host, origin, key and size of every request, and adds security headers to every response.

    ``any_ip`` accepts every IP address as the host.
    """

    def __init__(
        self, app: Any, *, hosts: Iterable[str], any_ip: bool = False, key: str = "", max_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self.app, self.hosts, self.any_ip, self.key, self.max_bytes = app, frozenset(hosts), any_ip, key, max_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it with an error."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # uvicorn leaves out the body
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        receive, send = self._limited(receive), self._with_headers(send)
        error = self._header_error(headers)
        if error is not None:
            await error_response(error)(scope, receive, send)
        elif self.key and scope["path"] == KEY_PATH and scope["method"] == "POST":
            await (await self._check_form(receive))(scope, receive, send)
        elif self.key and not self._has_key(headers):
            browser = scope["path"] == "/" and "text/html" in headers.get("accept", "")
            error = ApiError(401, "this server requires a key: Authorization: Bearer …")
            await (key_form() if browser else error_response(error))(scope, receive, send)
        else:
            try:
                await self.app(scope, receive, send)
            except ClientDisconnect:
                logging.getLogger("ensue.serve").debug("a client did not receive its response in time")

    def _header_error(self, headers: dict[str, str]) -> ApiError | None:
        """The error for a wrong host, origin or length."""
        host = headers.get("host", "").lower()
        name = _name(host)
        if name not in self.hosts and not (self.any_ip and _is_ip(name)):  # DNS cannot rebind an IP address
            return ApiError(421, "the Host header does not name this server")
        if "origin" in headers and headers["origin"].lower() not in (f"http://{host}", f"https://{host}"):
            return ApiError(403, "requests from other sites are not allowed")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.max_bytes:
            return self._too_large()
        return None

    def _too_large(self) -> ApiError:
        return ApiError(413, f"a request may have at most {self.max_bytes:,} bytes")

    def _has_key(self, headers: dict[str, str]) -> bool:
        """True if the request has the key as a bearer token, or the cookie of the key form."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
        cookies = [value for name, _, value in pairs if name == COOKIE]
        return (kind.lower() == "bearer" and _same(given.encode("latin-1"), self.key)) or any(
            _same(value.encode("latin-1"), self._token) for value in cookies
        )

    @property
    def _token(self) -> str:
        """The value of the cookie: it grants access without revealing the key."""
        return hmac.new(self.key.encode(), b"ensue page", "sha256").hexdigest()

    async def _check_form(self, receive: Any) -> Response:
        """The response to the key form: a cookie and a redirect to the page, or the form again."""
        body, more = b"", True
        try:
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
        except ApiError as error:
            return error_response(error)
        given = parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0]
        if not _same(given.encode("utf-8", "surrogateescape"), self.key):
            await asyncio.sleep(WRONG_KEY_DELAY)
            return key_form("Wrong key.")
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(COOKIE, self._token, httponly=True, samesite="strict", path="/")
        return response

    def _limited(self, receive: Any) -> Any:
        """``receive`` with a limit on the size of the body and the time that it takes."""
        size, complete, deadline = 0, False, asyncio.get_running_loop().time() + IO_TIMEOUT

        async def limited() -> Any:
            nonlocal size, complete
            try:
                async with asyncio.timeout_at(None if complete else deadline):
                    message = await receive()
            except TimeoutError as error:
                raise ApiError(408, "the body took too long") from error
            size += len(message.get("body", b""))
            complete = not message.get("more_body", False)
            if size > self.max_bytes:
                raise self._too_large()
            return message

        return limited

    def _with_headers(self, send: Any) -> Any:
        """``send`` with security headers and a timeout."""

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                own = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
                message = {**message, "headers": [*message["headers"], *more]}
            try:
                async with asyncio.timeout(IO_TIMEOUT):
                    await send(message)
            except TimeoutError as error:
                raise ClientDisconnect from error

        return send_with_headers


def key_form(message: str = "") -> Response:
    """The form that asks for the key."""
    template = Template((Path(__file__).parent / "key.html").read_text(encoding="utf-8"))
    page = template.substitute(message=escape(message))
    return HTMLResponse(page, status_code=401, headers={"cache-control": "no-store"})


def _same(given: bytes, wanted: str) -> bool:
    return hmac.compare_digest(given, wanted.encode())


def _is_ip(name: str) -> bool:
    """True for an IP address.

    >>> _is_ip("192.0.2.1"), _is_ip("[::1]"), _is_ip("a.b")
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
