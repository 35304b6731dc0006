"""The checks before a request reaches the app: sites, lengths and keys."""

import asyncio

import httpx
import pytest
from serving import app_server, read_all, read_to

from ensue.serve.keys import FREE_GUESSES, FREE_OF_PEER
from ensue.serve.security import MAX_FORM_BYTES, PIECE, SecurityMiddleware


async def ok(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


def asked(app, *requests):
    """The responses to requests, given as (method, path, headers)."""

    async def ask():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return [await client.request(method, path, headers=headers) for method, path, headers in requests]

    return asyncio.run(ask())


def open_app(**options):
    return SecurityMiddleware(ok, hosts=["127.0.0.1"], **options)


LINK = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


@pytest.mark.parametrize("site", ["cross-site", "same-site", "unheard-of"])
@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/health", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}),
        ("GET", "/page/vega.js", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}),
        ("GET", "/api/page/tree", LINK),
        ("GET", "/", {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}),
        ("GET", "/", {"sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"}),
        ("GET", "/", {}),
        ("POST", "/", LINK),
        ("POST", "/v1/completions", {}),
    ],
)
def test_requests_that_another_site_causes_are_refused(site, method, path, headers):
    (refused,) = asked(open_app(), (method, path, {"sec-fetch-site": site, **headers}))
    assert refused.status_code == 403 and "other sites" in refused.json()["error"]["message"]


def test_a_link_may_open_the_page_and_the_page_may_ask():
    answers = asked(
        open_app(),
        ("GET", "/", {"sec-fetch-site": "cross-site", **LINK}),
        ("GET", "/", {"sec-fetch-site": "none", **LINK}),
        ("POST", "/api/next", {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}),
        ("GET", "/health", {}),  # not a browser
    )
    assert [answer.status_code for answer in answers] == [200] * 4


@pytest.mark.parametrize("port", ["[", "x", "80@evil.example", "80/evil", ""])
def test_a_host_has_a_number_as_its_port(port):
    """Redirects are made from it, and a host that is none would be an internal error there."""
    right, wrong = asked(open_app(), *[("GET", "/", {"host": f"127.0.0.1:{port}"}) for port in ("80", port)])
    assert right.status_code == 200 and wrong.status_code == 421


def test_the_key_form_is_small():
    """Anybody may send it, and it is read on the event loop."""
    app = open_app(key="s3cret")

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            content = b"key=s3cret" + b"&a=1" * (MAX_FORM_BYTES // 4)
            return await client.post("/key", content=content)

    assert asyncio.run(ask()).status_code == 413


@pytest.mark.parametrize("length", [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 5 * PIECE + 7])
@pytest.mark.parametrize("more", [False, True])
def test_a_response_in_pieces_is_the_response(length, more):
    body, sent = bytes(range(256)) * (length // 256 + 1), []

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body[:length], "more_body": more})
        if more:
            await send({"type": "http.response.body", "body": b"end"})

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"127.0.0.1")]}
    asyncio.run(SecurityMiddleware(app, hosts=["127.0.0.1"])(scope, None, send))
    start, *pieces = sent
    assert start["type"] == "http.response.start" and max(len(piece["body"]) for piece in pieces) <= PIECE
    assert b"".join(piece["body"] for piece in pieces) == body[:length] + (b"end" if more else b"")
    assert [piece.get("more_body", False) for piece in pieces] == [True] * (len(pieces) - 1) + [False]


def test_a_request_with_two_lengths_is_refused_and_its_connection_closed():
    smuggled = b"GET /second HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    request = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    with app_server(open_app()) as server:
        answer = read_all(server.connect(request + smuggled))
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1 and b"Content-Length or" in answer


def test_a_client_that_guesses_keys_is_slowed():
    app = open_app(key="s3cret")
    wrong, right = ("GET", "/", {"authorization": "Bearer no"}), ("GET", "/", {"authorization": "Bearer s3cret"})
    *first, known = asked(app, *[wrong] * (FREE_GUESSES - 1), right)
    assert {answer.status_code for answer in first} == {401} and known.status_code == 200
    last, refused, unchecked, nothing = asked(app, wrong, wrong, right, ("GET", "/", {}))
    assert [last.status_code, refused.status_code, nothing.status_code] == [401, 429, 401]
    assert unchecked.status_code == 429 and int(unchecked.headers["retry-after"]) > 0  # a right guess is not told


def test_the_cookie_of_the_page_works_while_guesses_are_slowed():
    app = open_app(key="s3cret")

    async def ask():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            assert (await client.post("/key", data={"key": "s3cret"})).status_code == 303
            statuses = [(await client.post("/key", data={"key": "no"})).status_code for _ in range(FREE_GUESSES + 1)]
            assert statuses[0] == 401 and statuses[-1] == 429
            return await client.get("/")

    assert asyncio.run(ask()).status_code == 200


def test_the_cookie_of_the_page_cannot_be_computed_from_the_key():
    """Otherwise keys could be guessed by cookies, which are compared without a limit."""
    first, second = open_app(key="s3cret"), open_app(key="s3cret")

    async def cookie_of(app):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as client:
            return (await client.post("/key", data={"key": "s3cret"})).headers["set-cookie"].split(";")[0]

    cookie = asyncio.run(cookie_of(first))
    (own,), (other,) = (asked(app, ("GET", "/health", {"cookie": cookie})) for app in (first, second))
    assert own.status_code == 200 and other.status_code == 401


def test_a_local_client_cannot_guess_without_limit_under_invented_addresses():
    """uvicorn believes a local peer which client it forwards, as it would a proxy."""
    guess = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer no\r\nX-Forwarded-For: 192.0.%d.%d\r\n\r\n"
    with app_server(open_app(key="s3cret")) as server:
        client = server.connect()
        statuses = []
        for number in range(FREE_OF_PEER + 50):
            client.sendall(guess % divmod(number, 250))
            statuses.append(read_to(client, b"}}")[9:12])
    assert statuses[0] == b"401" and statuses[-1] == b"429"
