"""``ensue serve`` beside clients that never read, and over many requests: latency and resident memory.

python -m benchmarks.reliability.server [--short]

A small ``gpt`` and a small ``lstm`` are served on 127.0.0.1 by a process of their own.

Never-readers: 20 honest clients ask at a steady pace (completions, next tokens, health checks), first alone, then
beside 50 clients that pipeline requests for large files and views or open streams, and read nothing, then alone again.
Reported are the ratios of the honest clients' median and 95th percentile over the whole time, the first seconds
included in which the 50 are still served, and how many of them the server has dropped.

Memory: 20,000 mixed requests (completions, streams, views, verbs, bad bodies, unknown paths, files of the page, and
clients that leave early), eight at a time; resident memory after the first 2,000 against the highest of all later
looks, one every 250 requests, when none is running.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import select
import socket
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

import ensue
from benchmarks.record import record
from benchmarks.reliability.row import Row

HONEST, UNREADING = 20, 50
PACE = 0.4
"""Seconds between two requests of an honest client."""
DROPPED_AFTER = 45.0
"""Seconds after which the server must have dropped a client that does not read: its limit and a margin."""
WARM_UP = 2_000
"""Requests before memory is measured: what is made once is made then."""
WORKERS, BATCH = 8, 250
"""Requests at the same time, and between two looks at the memory, for which all of them end."""
SLOWER, GROWTH = 2.0, 5.0
"""Targets: at most so many times the latency, and so many MB."""
GIVE_UP = 120.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true", help="3,000 requests instead of 20,000")
    rows = measure(parser.parse_args().short)
    record("reliability", {"part": "server", "rows": [row._asdict() for row in rows]})
    if not all(row.holds for row in rows):
        raise SystemExit("a target is missed")


def measure(short: bool) -> list[Row]:
    """Measure both, in one server process each."""
    with tempfile.TemporaryDirectory() as name:
        folders = _train(Path(name))
        with _served(folders) as (address, _):
            rows = asyncio.run(beside_clients_that_never_read(address))
        with _served(folders) as (address, process):
            rows += asyncio.run(memory_over_requests(address, process, 3_000 if short else 20_000))
    return rows


def _train(folder: Path) -> list[Path]:
    """Two small models, barely trained: what they write does not matter here."""
    small = {"hidden": 64, "train.steps": 2, "tokenizer.vocabulary": 2000}
    ensue.fit("gpt", "pydoc", out=folder / "gpt", settings={**small, "layers": 2, "heads": 4, "context": 64})
    ensue.fit("lstm", "pydoc", out=folder / "lstm", settings=small)
    return [folder / "gpt", folder / "lstm"]


@contextlib.contextmanager
def _served(folders: list[Path]) -> Iterator[tuple[str, int]]:
    """The address and the process of a server."""
    command = [sys.executable, "-m", "ensue", "serve", *map(str, folders), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split(" on ")[1].split(";")[0]
        end = time.monotonic() + GIVE_UP
        while time.monotonic() < end:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{address}/page/vega.js", timeout=GIVE_UP)  # bundled by now
                break
            time.sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


async def beside_clients_that_never_read(address: str) -> list[Row]:
    """Honest clients alone, then beside others until those are dropped, then alone again, since machines vary."""
    await _honest(address, 5.0)
    earlier = await _honest(address, DROPPED_AFTER / 2)
    unreading = [_never_reads(address, number) for number in range(UNREADING)]
    try:
        beside = await _honest(address, DROPPED_AFTER)
        dropped = sum(map(_was_dropped, unreading))
    finally:
        for client in unreading:
            client.close()
    later = await _honest(address, DROPPED_AFTER / 2)
    rows = []
    for name, figure in (("median", statistics.median), ("95th percentile", _p95)):
        first, middle, last = (1000 * figure(some) for some in (earlier, beside, later))
        ratio = middle / (1000 * figure(earlier + later))
        rows.append(
            Row(
                f"{name} latency of {HONEST} clients beside {UNREADING} that never read",
                f"at most {SLOWER:g} times that without them",
                f"{ratio:.2f} times ({first:.1f} ms before, {middle:.1f} beside, {last:.1f} after)",
                ratio <= SLOWER,
            )
        )
    what = f"clients dropped that have read nothing for {DROPPED_AFTER:g} s"
    rows.append(Row(what, f"all {UNREADING}", f"{dropped} of {UNREADING}", dropped == UNREADING))
    return rows


def _p95(seconds: list[float]) -> float:
    return statistics.quantiles(seconds, n=20)[-1]


async def _honest(address: str, seconds: float) -> list[float]:
    """Latencies of honest clients, from when a request was due; every request must succeed.

    Each client keeps its own schedule, so that a slow answer neither hides later requests nor makes all ask at once.
    """
    requests: list[tuple[str, str, dict[str, Any] | None]] = [
        ("POST", "/v1/completions", {"model": "gpt", "prompt": "The", "max_tokens": 16, "temperature": 0}),
        ("POST", "/api/next", {"model": "lstm", "text": "The number of"}),
        ("GET", "/health", None),
    ]
    latencies: list[float] = []

    async def ask(number: int, client: httpx.AsyncClient) -> None:
        due = began + PACE * number / HONEST
        for turn in range(number, number + int(seconds / PACE)):
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            method, path, body = requests[turn % len(requests)]
            answer = await client.request(method, path, json=body)
            assert answer.status_code == 200, answer.text
            latencies.append(time.perf_counter() - due)
            due += PACE

    began = time.perf_counter()
    async with httpx.AsyncClient(base_url=address, timeout=GIVE_UP) as client:
        await asyncio.gather(*(ask(number, client) for number in range(HONEST)))
    return latencies


def _never_reads(address: str, number: int) -> socket.socket:
    """A client that asks for much and reads nothing."""
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)))
    stream = {"model": "gpt", "prompt": "The", "max_tokens": 4096, "logprobs": 10, "stream": True, "temperature": 0}
    kinds = [
        _request(host, "GET", "/page/vega.js") * 20,
        _request(host, "POST", "/v1/completions", stream),
        _request(host, "POST", "/api/look/positions", {}) * 20,
    ]
    client.sendall(kinds[number % len(kinds)])
    return client


def _request(host: str, method: str, path: str, body: dict[str, Any] | None = None) -> bytes:
    content = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


def _was_dropped(client: socket.socket) -> bool:
    """True if the server has reset the connection, which can be seen without reading."""
    poll = select.poll()
    poll.register(client, 0)
    return bool(poll.poll(0))


async def memory_over_requests(address: str, process: int, count: int) -> list[Row]:
    """Resident memory over mixed requests."""
    chance, statuses = random.Random(0), Counter[int]()
    sizes: list[float] = []

    async def work(client: httpx.AsyncClient, numbers: Iterator[int]) -> None:
        for _ in numbers:
            statuses[await _mixed_request(client, chance)] += 1

    start = time.perf_counter()
    async with httpx.AsyncClient(base_url=address, timeout=GIVE_UP) as client:
        for done in range(0, count, BATCH):
            numbers = iter(range(BATCH))
            await asyncio.gather(*(work(client, numbers) for _ in range(WORKERS)))
            if done + BATCH >= WARM_UP:
                sizes.append(_resident(process))  # no request is running
    rate = count / (time.perf_counter() - start)
    growth = max(sizes) - sizes[0]
    codes = ", ".join(f"{number} × {status or 'left'}" for status, number in sorted(statuses.items()))
    return [
        Row(
            f"growth of resident memory over {count:,} mixed requests, after the first {WARM_UP:,}",
            f"at most {GROWTH:g} MB",
            f"{growth:.1f} MB ({sizes[0]:.0f} → at most {max(sizes):.0f} MB; {rate:.0f} requests a second; {codes})",
            growth <= GROWTH,
        ),
        Row("internal errors among them", "none", str(statuses[500]), statuses[500] == 0),
    ]


async def _mixed_request(client: httpx.AsyncClient, chance: random.Random) -> int:
    """Send a request of some kind; returns its status, 0 for a client that leaves early."""
    words = " ".join("".join(chance.choices(string.ascii_letters, k=7)) for _ in range(chance.randrange(1, 12)))
    model = chance.choice(("gpt", "lstm"))
    completion = {"model": model, "prompt": words, "max_tokens": chance.randrange(1, 12), "logprobs": 2}
    view = chance.choice(("next", "surprise", "attention", "positions", "curves"))
    text = {"text": words} if view in ("next", "surprise", "attention") else {}
    content = chance.choice((b"{", b"[]", b"\xff", json.dumps({"model": words}).encode(), b"0" * 5000))
    path = chance.choice(("/", "/health", "/metrics", "/v1/models", "/page/page.js", f"/{words.replace(' ', '/')}"))
    kinds: list[tuple[float, str, str, dict[str, Any]]] = [
        (15, "POST", "/v1/completions", {"json": completion}),
        (10, "POST", "/v1/completions", {"json": {**completion, "stream": True}}),
        (5, "LEAVE", "/v1/completions", {"json": {**completion, "stream": True}}),
        (10, "POST", f"/api/look/{view}", {"json": {"models": ["gpt"], **text}}),
        (20, "POST", "/api/next", {"json": {"model": model, "text": words}}),
        (10, "POST", "/v1/embeddings", {"json": {"model": model, "input": words}}),
        (10, "POST", "/v1/completions", {"content": content, "headers": {"content-type": "application/json"}}),
        (15, "GET", path, {}),
        (5, "GET", path, {"headers": {"connection": "close"}}),
    ]
    ((_, method, address, options),) = chance.choices(kinds, [kind[0] for kind in kinds])
    if method != "LEAVE":
        return (await client.request(method, address, **options)).status_code
    async with client.stream("POST", address, **options) as answer:
        await anext(answer.aiter_raw())
    return 0


def _resident(process: int) -> float:
    """Resident memory of a process, in MB."""
    status = Path(f"/proc/{process}/status").read_text(encoding="utf-8")
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]
    return int(kilobytes) / 1024


if __name__ == "__main__":
    main()
