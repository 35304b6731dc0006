"""Security checks before a request reaches the app.

Host      must be a name of this server; otherwise another site could reach it by DNS rebinding
Origin    must be this server's own, or missing
fetch     browsers say which site caused a request; another one may only open the page, by a link
key       if one is set: as a bearer token, or as the cookie that the key form sets; guesses are slowed
body      has one length, a maximum size, whatever its header says, and a timeout
response  is sent in pieces, so that a client that does not read holds one of them and not the whole
"""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
from collections.abc import Iterable
from functools import cache
from html import escape
from pathlib import Path
from string import Template
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from fastapi.responses import HTMLResponse, RedirectResponse, Response

from ensue.serve.client_address import client_address
from ensue.serve.errors import ApiError, error_response
from ensue.serve.keys import FREE_OF_PEER, INTERVAL_OF_PEER, GuessLimit, same_key

MAX_BODY_BYTES = 1 << 20
MAX_FORM_BYTES = 1 << 14
"""Bytes of the key form: anybody can send it."""
PIECE = 1 << 15
"""Bytes of a response that are sent at once."""
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
BODY_TIMEOUT = 30.0
"""Seconds that a client has to send its body."""
PAGE_PATHS = ("/",)
"""Paths that a link on another site may open."""
OWN_SITES = ("none", "same-origin")
"""Values of Sec-Fetch-Site for requests that no other site caused."""
LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
"""Headers of a request that opens a page in a tab."""


class Client(NamedTuple):
    """Who sent a request."""

    address: str
    """As a proxy on this machine names it, or the peer's."""
    peer: str
    """The address that the connection comes from."""


class SecurityMiddleware:
    """Checks host, origin, key and size of every request, and adds security headers to every response.

    ``any_ip`` accepts every IP address as the host.
    """

    def __init__(
        self, app: Any, *, hosts: Iterable[str], any_ip: bool = False, key: str = "", max_bytes: int = MAX_BODY_BYTES
    ) -> None:
        self.app, self.hosts, self.any_ip, self.key, self.max_bytes = app, frozenset(hosts), any_ip, key, max_bytes
        self.cookie = secrets.token_hex(32)
        """The value of the page's cookie. Made from the key alone it could be guessed like the key, without a limit."""
        self.guesses, self.guesses_of_peer = GuessLimit(), GuessLimit(FREE_OF_PEER, INTERVAL_OF_PEER)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or answer it with an error."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}  # uvicorn leaves out the body
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        most = MAX_FORM_BYTES if scope["path"] == KEY_PATH else self.max_bytes
        receive, send = _limited(receive, most), _in_pieces(_with_headers(send))
        error = self._header_error(scope, headers)
        connection = scope.get("state", {}).get("connection")
        client = Client(client_address(scope.get("client")), getattr(connection, "address", ""))
        if error is not None:
            close = {"Connection": "close"} if error.status == 400 else None  # where the body ends is in doubt
            await error_response(error, close)(scope, receive, send)
        elif self.key and scope["path"] == KEY_PATH and scope["method"] == "POST":
            await (await self._check_form(client, receive))(scope, receive, send)
        elif self.key and (error := self._key_error(client, headers)) is not None:
            browser = scope["path"] == "/" and "text/html" in headers.get("accept", "")
            await (key_form() if browser else error_response(error))(scope, receive, send)
        else:
            if self.key and connection is not None:
                connection.trust()
            await self.app(scope, receive, send)

    def _header_error(self, scope: Any, headers: dict[str, str]) -> ApiError | None:
        """The error for a wrong host, origin, site or length."""
        host = headers.get("host", "").lower()
        name = _name(host)
        if name not in self.hosts and not (self.any_ip and _is_ip(name)):  # DNS cannot rebind an IP address
            return ApiError(421, "the Host header does not name this server")
        if "origin" in headers and headers["origin"].lower() not in (f"http://{host}", f"https://{host}"):
            return ApiError(403, "requests from other sites are not allowed")
        if headers.get("sec-fetch-site", "none") not in OWN_SITES and not _opens_page(scope, headers):
            return ApiError(403, "requests from other sites are not allowed")
        if "content-length" in headers and "transfer-encoding" in headers:
            return ApiError(400, "a request has either Content-Length or Transfer-Encoding")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.max_bytes:
            return _too_large(self.max_bytes)
        return None

    def _key_error(self, client: Client, headers: dict[str, str]) -> ApiError | None:
        """The error for a request without the key; None if it has it, as a bearer token or the key form's cookie."""
        pairs = [pair.strip().partition("=") for pair in headers.get("cookie", "").split(";")]
        cookies = [value for name, _, value in pairs if name == COOKIE]
        if any(same_key(value.encode("latin-1"), self.cookie) for value in cookies):
            return None
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            return ApiError(401, "this server requires a key: Authorization: Bearer …")
        return self._wrong_key(client, given.encode("latin-1"))

    def _wrong_key(self, client: Client, given: bytes) -> ApiError | None:
        """The error for a wrong key, and for any key of a client that has sent too many wrong ones."""
        if wait := max(self.guesses.wait(client.address), self.guesses_of_peer.wait(client.peer)):
            return ApiError(429, f"too many wrong keys; try again in {wait} s", retry=wait)
        if same_key(given, self.key):
            return None
        self.guesses.wrong(client.address)
        self.guesses_of_peer.wrong(client.peer)
        return ApiError(401, "this is not the key of this server")

    async def _check_form(self, client: Client, receive: Any) -> Response:
        """The response to the key form: a cookie and a redirect to the page, or the form again."""
        body, more = b"", True
        try:
            while more:
                message = await receive()
                body, more = body + message.get("body", b""), message.get("more_body", False)
        except ApiError as error:
            return error_response(error)
        given = parse_qs(body.decode("utf-8", "replace")).get("key", [""])[0]
        wrong = self._wrong_key(client, given.encode("utf-8", "surrogateescape"))
        if wrong is not None:
            return key_form("Wrong key." if wrong.retry is None else f"{wrong.message.capitalize()}.", wrong.status)
        response = RedirectResponse("/", status_code=303)
        response.set_cookie(COOKIE, self.cookie, httponly=True, samesite="strict", path="/")
        return response


def _limited(receive: Any, most: int) -> Any:
    """``receive`` with a limit on the size of the body and the time that it takes."""
    size, complete, deadline = 0, False, asyncio.get_running_loop().time() + BODY_TIMEOUT

    async def limited() -> Any:
        nonlocal size, complete
        try:
            async with asyncio.timeout_at(None if complete else deadline):
                message = await receive()
        except TimeoutError as error:
            raise ApiError(408, "the body took too long") from error
        size += len(message.get("body", b""))
        complete = not message.get("more_body", False)
        if size > most:
            raise _too_large(most)
        return message

    return limited


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"a request may have at most {most:,} bytes")


def _with_headers(send: Any) -> Any:
    """``send`` with security headers."""

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            own = {name.lower() for name, _ in message["headers"]}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return send_with_headers


def _in_pieces(send: Any) -> Any:
    """``send`` that waits after each piece of a large body until the client has made room for it."""

    async def send_in_pieces(message: Any) -> None:
        body, more = message.get("body", b""), message.get("more_body", False)
        for start in range(0, len(body) - PIECE, PIECE):
            await send({**message, "body": body[start : start + PIECE], "more_body": True})
            await asyncio.sleep(0)  # for others, and to learn that the client has left
        last = max(0, (len(body) - 1) // PIECE * PIECE)
        await send({**message, "body": body[last:], "more_body": more} if last else message)

    return send_in_pieces


def key_form(message: str = "", status: int = 401) -> Response:
    """The form that asks for the key."""
    page = _key_template().substitute(message=escape(message))
    return HTMLResponse(page, status_code=status, headers={"cache-control": "no-store"})


@cache
def _key_template() -> Template:
    return Template((Path(__file__).parent / "key.html").read_text(encoding="utf-8"))


def _opens_page(scope: Any, headers: dict[str, str]) -> bool:
    """True for a request that opens the page in a tab."""
    link = all(headers.get(name) == value for name, value in LINK.items())
    return link and scope["method"] == "GET" and scope["path"] in PAGE_PATHS


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
    """A host without its port; what is not a port stays.

    >>> _name("localhost:8000"), _name("[::1]:80"), _name("[::1]"), _name("a.b"), _name("localhost:1@a.b")
    ('localhost', '[::1]', '[::1]', 'a.b', 'localhost:1@a.b')
    """
    name, _, port = host.rpartition(":")
    return name if port.isdecimal() else host
