"""A server as it runs: runs that are opened, a port, and an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvicorn

from ensue.core.errors import InputError
from ensue.kernels.int8 import quantise
from ensue.runs.load import Run, load
from ensue.search.model_step import quiet
from ensue.serve.app import create_app
from ensue.serve.connection_limits import Patient
from ensue.serve.model_registry import Hall
from ensue.verbs.race_folder import is_race, runs_of

WILD = ("0.0.0.0", "::")
"""All addresses of the machine, whatever they are."""
GRACE = 30
"""Seconds that requests have to finish when the server is told to end."""
LAST = 27.0
"""Seconds after which those that still run are told so, while there is time to."""
HURRY = 2.0
"""Seconds that they have to hear it, where the server is told twice to end."""
LOOK = 0.05
"""Seconds between two looks at whether all is done."""


class Server(uvicorn.Server):
    """uvicorn's, which lets the models finish before it closes connections."""

    def __init__(self, config: uvicorn.Config, hall: Hall) -> None:
        super().__init__(config)
        self.hall = hall

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more, finish what is under way, and tell those who could not be served to the end."""
        closing = threading.Thread(target=self.hall.close, args=(LAST,), name="closing", daemon=True)
        closing.start()
        await super().shutdown(sockets)
        while closing.is_alive() and not self.force_exit:  # which a second Ctrl-C sets
            await asyncio.sleep(LOOK)
        if self.force_exit:
            await asyncio.to_thread(self.hall.close, 0.0)  # whoever is left is told now
            until = time.monotonic() + HURRY
            while self.server_state.tasks and time.monotonic() < until:
                await asyncio.sleep(LOOK)


@dataclass(frozen=True)
class Listening:
    """A server that has its port."""

    server: Server
    listener: socket.socket
    address: str

    def run(self) -> None:
        """Answer until SIGINT or SIGTERM; then take no more, and finish what is under way."""
        self.server.run(sockets=[self.listener])

    @contextlib.contextmanager
    def beside(self) -> Iterator[str]:
        """Answer on a thread while something else goes on, the cells of a notebook say; the address."""
        thread = threading.Thread(target=self.run, name="server")
        thread.start()
        try:
            yield self.address
        finally:
            self.server.should_exit = True
            thread.join()


def open_hall(paths: Sequence[Path], *, int8: bool = False) -> Hall:
    """Runs by the names they are served under, with their models loaded; of a race all that took part."""
    paths = [path.absolute() for path in paths]  # of "." no name could be told
    races = [path for path in paths if is_race(path)]
    found = [run for path in paths for run in (runs_of(path) if path in races else [path])]
    if len({path.resolve() for path in found}) < len(found):
        raise InputError("a run is named twice", hint="name each once")
    runs = {name: load(path) for name, path in zip(names_of(found), found)}
    for run in runs.values():
        _ready(run, int8)
    return Hall(runs, dict(zip(names_of(races), races)))


def names_of(paths: Sequence[Path]) -> list[str]:
    """What runs are called: the last part of their paths, with as many before it as tell them apart.

    >>> names_of([Path("/runs/lstm"), Path("/runs/gru"), Path("/old/gru")])
    ['lstm', 'runs/gru', 'old/gru']
    """
    parts = [path.absolute().parts[1:] for path in paths]
    names = []
    for own in parts:
        sizes = (size for size in range(1, len(own) + 1) if [other[-size:] for other in parts].count(own[-size:]) == 1)
        names.append("/".join(own[-next(sizes, len(own)) :]))
    return names


def _ready(run: Run, int8: bool) -> None:
    """Load the model, to be read with; in eight bits its linear layers, where it has some."""
    quiet(run.model)
    if int8 and run.task != "forecast" and hasattr(run.model, "named_modules"):
        held: Any = run
        held.model = quantise(run.model)


@contextlib.contextmanager
def listen(hall: Hall, *, host: str, port: int, key: str = "") -> Iterator[Listening]:
    """Take a port; it is given back whatever happens."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol named asyncio sends small answers at once: else each waits for the client's word, some 40 ms
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
            listener.listen(512)  # whoever comes before the app is ready waits
        except OSError as error:
            what = f"port {port} of {host} cannot be had ({error.strerror})"
            other = "--host" if isinstance(error, socket.gaierror) else "--port"
            raise InputError(what, hint=f"give another {other}") from error
        taken = listener.getsockname()[1]
        config = uvicorn.Config(
            create_app(hall, key=key, hosts=_names(host), numbers=host in WILD),
            log_level="warning",
            timeout_graceful_shutdown=GRACE,
            http=Patient,
            lifespan="off",
            server_header=False,
        )
        shown = f"[{host}]" if ":" in host else host
        yield Listening(Server(config, hall), listener, f"http://{shown}:{taken}")
    finally:
        listener.close()


def _names(host: str) -> tuple[str, ...]:
    """The names that clients may call this server by, beside those of the machine itself."""
    own = {host.lower(), f"[{host.lower()}]"}
    if host in WILD:
        own |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return tuple(sorted(own))
