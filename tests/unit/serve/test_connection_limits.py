"""Connections: clients that do not read are dropped, and nobody can take all slots."""

import gc
import socket
import time
import weakref

import pytest
from serving import app_server, read_all, read_to, until, was_reset

from ensue.serve import connection_limits
from ensue.serve.security import SecurityMiddleware

BIG = b"x" * (1 << 20)
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


async def large_file(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(BIG))]})
    await send({"type": "http.response.body", "body": BIG})


async def small_file(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


async def reads_first(scope, receive, send):
    while (await receive()).get("more_body"):
        continue
    await small_file(scope, receive, send)


class Stream:
    """An app that sends without end, and counts what it could send."""

    def __init__(self):
        self.pieces, self.ended = 0, 0

    async def __call__(self, scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while not scope["state"]["connection"].dropped:
            await send({"type": "http.response.body", "body": b"x" * 1024, "more_body": True})
            self.pieces += 1
        self.ended += 1


@pytest.fixture
def quick(monkeypatch):
    """Clients are dropped after half a second."""
    monkeypatch.setattr(connection_limits, "STALL_TIMEOUT", 0.5)


@pytest.mark.parametrize("request_", [GET, GET * 20, CLOSE], ids=["one", "pipelined", "closing"])
def test_clients_that_read_nothing_of_a_large_file_are_dropped(quick, request_):
    with app_server(large_file) as server:
        clients = [server.connect(request_) for _ in range(5)]
        until(lambda: len(server.connections) == 5)
        until(lambda: not server.connections and not server.server.server_state.tasks)
        for client in clients:
            until(lambda client=client: was_reset(client))  # nothing waits in the kernel either
            assert len(read_all(client)) < len(BIG)
            client.close()


def test_clients_that_do_not_read_hold_a_piece_of_a_large_file_and_not_all_of_it():
    with app_server(SecurityMiddleware(large_file, hosts=["127.0.0.1"])) as server:
        clients = [server.connect(CLOSE) for _ in range(5)]
        until(lambda: len(server.connections) == 5 and all(one.transport.unsent for one in server.connections))
        time.sleep(0.1)
        assert max(one.transport.unsent for one in server.connections) < len(BIG) / 10
        for client in clients:
            assert read_all(client).endswith(BIG)


CHUNKED = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize("app", [small_file, reads_first], ids=["answered", "unanswered"])
def test_a_body_that_breaks_off_into_something_else_closes_the_connection(app, caplog):
    with app_server(app) as server:
        client = server.connect(CHUNKED + b"2\r\nab\r\n")
        if app is small_file:
            read_to(client, b"ok")
        client.sendall(b"not a chunk\r\n\r\n" * 20)
        assert read_all(client).count(b"HTTP/1.1") == (app is reads_first)
        until(lambda: not server.connections and not server.server.server_state.tasks)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize("app", [small_file, reads_first], ids=["answered", "unanswered"])
def test_a_body_in_very_many_pieces_is_refused(app, monkeypatch):
    monkeypatch.setattr(connection_limits, "MAX_PIECES", 100)
    with app_server(app) as server:
        client = server.connect(CHUNKED + b"1\r\na\r\n" * 99 + b"0\r\n\r\n")
        assert b"200 OK" in read_to(client, b"ok")
        client.sendall(CHUNKED + b"1\r\na\r\n" * 100)  # each request has its own count
        if app is small_file:
            assert b"200 OK" in read_to(client, b"ok")
        client.sendall(b"1\r\na\r\n")
        assert read_all(client).count(b"400 Bad Request") == (app is reads_first)
        until(lambda: not server.connections)


def test_a_stream_that_nobody_reads_pauses_and_its_client_is_dropped(quick):
    app = Stream()
    with app_server(app) as server:
        client = server.connect(GET)
        until(lambda: app.ended)
        assert 0 < app.pieces < 1000  # about the buffers of both sides: 1 MB would be far more than those hold
        until(lambda: not server.connections)
        client.close()


def test_a_client_that_reads_slowly_gets_everything(quick):
    with app_server(large_file) as server:
        client, got = server.connect(CLOSE), b""
        while piece := client.recv(1 << 15):
            got += piece
            time.sleep(0.02)
        assert got.endswith(BIG)
        client.close()


def test_idle_connections_are_closed(monkeypatch):
    monkeypatch.setattr(connection_limits, "IDLE_TIMEOUT", 0.3)
    with app_server(small_file) as server:
        silent, half, after = server.connect(), server.connect(b"GET / HT"), server.connect(GET)
        assert read_all(silent) == b"" and read_all(half) == b""
        assert read_all(after).endswith(b"ok")


def test_the_client_that_keeps_the_server_waiting_longest_makes_room(monkeypatch):
    monkeypatch.setattr(connection_limits, "MAX_PER_CLIENT", 3)
    monkeypatch.setattr(connection_limits, "GRACE", 0.0)
    with app_server(small_file) as server:
        clients = []
        for count in range(1, 4):
            clients.append(server.connect())
            until(lambda count=count: len(server.connections) == count)
        newest = server.connect(CLOSE)
        assert read_all(newest).endswith(b"ok") and read_all(clients[0]) == b""
        clients[1].sendall(CLOSE)
        assert read_all(clients[1]).endswith(b"ok")


def test_one_address_cannot_take_all_slots(monkeypatch):
    monkeypatch.setattr(connection_limits, "MAX_PER_CLIENT", 2)
    with app_server(small_file) as server:
        held = [server.connect(address="127.0.0.2") for _ in range(2)]
        until(lambda: len(server.connections) == 2)
        assert b"503" in read_all(server.connect(address="127.0.0.2"))
        assert read_all(server.connect(CLOSE)).endswith(b"ok")
        assert all(client.fileno() >= 0 for client in held)


def test_connections_that_have_shown_the_key_have_slots_of_their_own(monkeypatch):
    monkeypatch.setattr(connection_limits, "MAX_CONNECTIONS", 2)
    monkeypatch.setattr(connection_limits, "GRACE", 0.2)
    known = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer s3cret\r\n\r\n"
    with app_server(SecurityMiddleware(small_file, hosts=["127.0.0.1"], key="s3cret")) as server:
        friends = [server.connect(known) for _ in range(2)]
        for friend in friends:
            assert b"200 OK" in read_to(friend, b"ok")
        strangers = [server.connect(GET) for _ in range(2)]
        assert all(b"401" in read_to(stranger, b"}}") for stranger in strangers)
        time.sleep(0.3)  # strangers keep their slots only for a while
        late = server.connect(known)
        assert b"200 OK" in read_to(late, b"ok")
        for friend in friends:
            friend.sendall(known)
            assert b"200 OK" in read_to(friend, b"ok")  # and nobody takes those of friends


@pytest.mark.parametrize("reset", [False, True])
def test_closed_connections_leave_nothing_in_memory(reset):
    with app_server(small_file) as server:
        clients = [server.connect(GET) for _ in range(5)]
        for client in clients:
            read_to(client, b"ok")
        known = [weakref.ref(connection) for connection in server.connections]
        for client in clients:
            if reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, connection_limits.RESET)
            client.close()
        until(lambda: not server.connections)
        last = server.connect(CLOSE)  # the loop's own variables let go of the others
        read_all(last)
        gc.collect()
        assert len(known) == 5 and not any(connection() for connection in known)
