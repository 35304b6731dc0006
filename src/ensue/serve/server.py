"""Load models, listen on a port, serve, and shut down gracefully."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from torch import nn

from ensue.core.errors import InputError
from ensue.core.memory import release_freed_memory, trim_memory
from ensue.data.tokenizers.library import LibraryTokenizer
from ensue.kernels.int8 import quantise
from ensue.nn.mixers.full import use_cache_type
from ensue.runs.load import load
from ensue.search.model_step import set_eval
from ensue.serve.app import create_app
from ensue.serve.connection_limits import LimitedProtocol
from ensue.serve.keys import check_key
from ensue.serve.model_registry import ModelRegistry
from ensue.verbs.racing.folder import is_race, runs_of

WILDCARD_HOSTS = ("0.0.0.0", "::")
"""All addresses of the machine."""
SHUTDOWN_TIMEOUT = 30
"""Seconds that requests have to finish after SIGINT or SIGTERM."""
ABORT_AFTER = 27.0
"""Seconds after which requests that still run get an error, while there is time to send it."""
FORCED_TIMEOUT = 5.0
"""Seconds that clients have to read those errors after a second SIGINT."""
POLL_INTERVAL = 0.05
MAX_CACHED_WORDS = 2000
"""Words of prompts that a tokenizer's library caches: about 500 bytes each."""
TRIM_TICKS = 300
"""Tenths of a second between two returns of freed memory to the system."""
SEND_BUFFER = 1 << 15
"""Bytes of responses that the kernel holds for a client: without a limit it takes megabytes that nobody reads."""


class Server(uvicorn.Server):
    """uvicorn's server, which lets the models finish before it closes connections."""

    def __init__(self, config: uvicorn.Config, registry: ModelRegistry) -> None:
        super().__init__(config)
        self.registry = registry
        self._trimmed_at = 0

    async def on_tick(self, counter: int) -> bool:
        """Return what requests have freed to the system now and then; uvicorn calls this ten times a second."""
        requests = self.server_state.total_requests
        if counter % TRIM_TICKS == 0 and requests > self._trimmed_at:
            self._trimmed_at = requests
            await asyncio.to_thread(trim_memory)
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more requests, finish the running ones, and send an error to those that take too long."""
        closing = threading.Thread(target=self.registry.close, args=(ABORT_AFTER,), name="closing", daemon=True)
        closing.start()
        await super().shutdown(sockets)
        while closing.is_alive() and not self.force_exit:  # set by a second Ctrl-C
            await asyncio.sleep(POLL_INTERVAL)
        if self.force_exit:
            await asyncio.to_thread(self.registry.close, 0.0)
            deadline, state = time.monotonic() + FORCED_TIMEOUT, self.server_state
            while (
                state.tasks or state.connections
            ) and time.monotonic() < deadline:  # a connection may have unsent bytes
                await asyncio.sleep(POLL_INTERVAL)


@dataclass(frozen=True)
class BoundServer:
    """A server that is bound to its port."""

    server: Server
    listener: socket.socket
    address: str

    def run(self) -> None:
        """Serve until SIGINT or SIGTERM, then shut down gracefully."""
        release_freed_memory()  # large blocks of requests
        gc.collect()
        gc.freeze()  # else garbage of requests may grow to a quarter of what was loaded before it is collected
        try:
            self.server.run(sockets=[self.listener])
        finally:
            gc.unfreeze()

    @contextlib.contextmanager
    def in_background(self) -> Iterator[str]:
        """Serve on a thread, e.g. from a notebook; yields the address."""
        thread = threading.Thread(target=self.run, name="server")
        thread.start()
        try:
            yield self.address
        finally:
            self.server.should_exit = True
            thread.join()


def load_models(paths: Sequence[Path], *, int8: bool = False, kv_cache: str = "float32") -> ModelRegistry:
    """Load runs, and all runs of races, into a registry.

    ``int8`` quantises linear layers, ``kv_cache`` is the type of key–value caches; both where a model has some.
    """
    paths = [path.absolute() for path in paths]  # "." has no name
    races = [path for path in paths if is_race(path)]
    folders = [run for path in paths for run in (runs_of(path) if path in races else [path])]
    if len({path.resolve() for path in folders}) < len(folders):
        raise InputError("a run is given twice", hint="give each once")
    runs = {name: load(path) for name, path in zip(short_names(folders), folders)}
    for run in runs.values():
        if run.spec.reads_text and isinstance(run.tokenizer, LibraryTokenizer):
            run.tokenizer.limit_cache(MAX_CACHED_WORDS)
        set_eval(run.model)
        if int8 and "int8" not in run.refused and hasattr(run.model, "named_modules"):
            run.model = quantise(run.model)
        if isinstance(run.model, nn.Module):
            use_cache_type(run.model, kv_cache)
    return ModelRegistry(runs, dict(zip(short_names(races), races)))


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last part of each path, with as many parts before it as make it unique.

    >>> short_names([Path("/runs/lstm"), Path("/runs/gru"), Path("/old/gru")])
    ['lstm', 'runs/gru', 'old/gru']
    """
    parts = [path.absolute().parts[1:] for path in paths]
    names = []
    for own in parts:
        sizes = (size for size in range(1, len(own) + 1) if [other[-size:] for other in parts].count(own[-size:]) == 1)
        names.append("/".join(own[-next(sizes, len(own)) :]))
    return names


@contextlib.contextmanager
def listen(registry: ModelRegistry, *, host: str, port: int, key: str | None = None) -> Iterator[BoundServer]:
    """Bind a server to a port, and close the socket at the end; without a ``key`` everybody is answered."""
    if key is not None:
        check_key(key)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it a small response waits some 40 ms for an ACK
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)  # connections inherit it
        try:
            listener.bind((host, port))
            listener.listen(512)  # clients that connect before the app is ready wait
        except OSError as error:
            what = f"cannot listen on port {port} of {host} ({error.strerror})"
            other = "--host" if isinstance(error, socket.gaierror) else "--port"
            raise InputError(what, hint=f"choose another {other}") from error
        bound_port = listener.getsockname()[1]
        config = uvicorn.Config(
            create_app(registry, key=key or "", hosts=_host_names(host), any_ip=host in WILDCARD_HOSTS),
            log_level="warning",
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
            http=LimitedProtocol,
            ws="none",
            lifespan="off",
            server_header=False,
        )
        shown = f"[{host}]" if ":" in host else host
        yield BoundServer(Server(config, registry), listener, f"http://{shown}:{bound_port}")
    finally:
        listener.close()


def _host_names(host: str) -> tuple[str, ...]:
    """Names that clients may use in the Host header, besides localhost."""
    names = {host.lower(), f"[{host.lower()}]"}
    if host in WILDCARD_HOSTS:
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return tuple(sorted(names))
