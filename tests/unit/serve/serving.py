"""A server of any ASGI app on a free port, with the limits on connections that ours has."""

import contextlib
import select
import socket
import threading
import time

import uvicorn

from ensue.serve.connection_limits import LimitedProtocol

GIVE_UP = 30.0


class AppServer:
    """A server in a thread; ``connections`` are those that are open."""

    def __init__(self, app):
        config = uvicorn.Config(app, http=LimitedProtocol, lifespan="off", log_level="critical", ws="none")
        self.server = uvicorn.Server(config)
        self.listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen(100)
        self.port = self.listener.getsockname()[1]

    @property
    def connections(self):
        return list(self.server.server_state.connections)

    def connect(self, request=b"", *, address="127.0.0.1"):
        """A client with a small receive buffer that has sent a request, or a part of one."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        client.settimeout(GIVE_UP)
        client.bind((address, 0))
        client.connect(("127.0.0.1", self.port))
        client.sendall(request)
        return client


@contextlib.contextmanager
def app_server(app):
    """Serve an app until the block ends."""
    made = AppServer(app)
    thread = threading.Thread(target=made.server.run, kwargs={"sockets": [made.listener]})
    thread.start()
    try:
        until(lambda: made.server.started)
        yield made
    finally:
        made.server.should_exit = made.server.force_exit = True
        thread.join(GIVE_UP)
        made.listener.close()


def until(ready):
    """Wait until something holds."""
    end = time.monotonic() + GIVE_UP
    while not ready() and time.monotonic() < end:
        time.sleep(0.01)
    assert ready()


def read_all(client):
    """What the server sends until it closes or drops the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while piece := client.recv(1 << 16):
            found += piece
    return found


def read_to(client, end):
    """What the server sends up to the last bytes of a response."""
    found = b""
    while not found.endswith(end):
        piece = client.recv(1 << 16)
        assert piece, found
        found += piece
    return found


def was_reset(client):
    """True if the server has reset the connection, which can be seen without reading."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))
