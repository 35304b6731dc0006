"""A server as it runs: a port, an app, and an orderly end."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from ensue.core.errors import InputError
from ensue.look.marks import short_names
from ensue.search.stepping import quiet
from ensue.serve.app import create_app
from ensue.verbs.run import Run, load

WILD = ("0.0.0.0", "::")
"""All addresses of the machine, whatever they are."""
GRACE = 30
"""Seconds that requests have to finish when the server is told to end."""


@dataclass(frozen=True)
class Listening:
    """A server that has its port."""

    server: uvicorn.Server
    listener: socket.socket
    address: str

    def run(self) -> None:
        """Answer until SIGINT or SIGTERM; then take no more, and finish what is under way."""
        self.server.run(sockets=[self.listener])


def open_runs(paths: Sequence[Path]) -> dict[str, Run]:
    """Runs by the names they are served under, with their models loaded."""
    names = short_names([str(path.absolute()) for path in paths])
    runs = {name: load(path) for name, path in zip(names, paths)}
    if len(runs) < len(paths):
        raise InputError("a run is named twice", mend="name each once")
    for run in runs.values():
        quiet(run.model)
    return runs


@contextlib.contextmanager
def listen(runs: Mapping[str, Run], *, host: str, port: int, key: str = "") -> Iterator[Listening]:
    """Take a port; it is given back whatever happens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(512)  # whoever comes before the app is ready waits
        except OSError as error:
            what = f"port {port} of {host} cannot be had ({error.strerror})"
            raise InputError(what, mend="give another --port") from error
        taken = listener.getsockname()[1]
        config = uvicorn.Config(
            create_app(runs, key=key, hosts=_names(host), numbers=host in WILD),
            log_level="warning",
            timeout_graceful_shutdown=GRACE,
            server_header=False,
        )
        shown = f"[{host}]" if ":" in host else host
        yield Listening(uvicorn.Server(config), listener, f"http://{shown}:{taken}")
    finally:
        listener.close()


def _names(host: str) -> tuple[str, ...]:
    """The names that clients may call this server by, beside those of the machine itself."""
    own = {host.lower(), f"[{host.lower()}]"}
    if host in WILD:
        own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return tuple(sorted(own))
