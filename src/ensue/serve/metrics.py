"""What the server has done, in the text that Prometheus reads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

LOADS = (("rows_running", "gauge"), ("rows_waiting", "gauge"), ("tokens_total", "counter"))
"""What is told of each model."""


class Counts:
    """Requests by path and status, their seconds, and how many are under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._open = 0

    def begin(self) -> None:
        """A request has come."""
        with self._lock:
            self._open += 1

    def end(self, path: str, status: int, seconds: float) -> None:
        """A request is done."""
        with self._lock:
            self._open -= 1
            self._requests[path, status] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]

    def told(self, loads: Mapping[str, tuple[int, int, int]]) -> str:
        """All of it; ``loads`` are rows that run and wait, and tokens drawn, by model."""
        with self._lock:
            lines = ["# TYPE ensue_requests_total counter"]
            lines += [
                f'ensue_requests_total{{path="{_quoted(path)}",status="{status}"}} {count}'
                for (path, status), count in sorted(self._requests.items())
            ]
            lines += ["# TYPE ensue_request_seconds_total counter"]
            lines += [
                f'ensue_request_seconds_total{{path="{_quoted(path)}"}} {seconds:.6f}'
                for path, seconds in sorted(self._seconds.items())
            ]
            lines += ["# TYPE ensue_requests_open gauge", f"ensue_requests_open {self._open}"]
        for place, (name, kind) in enumerate(LOADS):
            lines.append(f"# TYPE ensue_{name} {kind}")
            lines += [f'ensue_{name}{{model="{_quoted(model)}"}} {load[place]}' for model, load in loads.items()]
        return "\n".join(lines) + "\n"


class Counted:
    """An app whose requests are counted, by the paths that it has: what nobody has is one path."""

    def __init__(self, app: Any, counts: Counts) -> None:
        self.app, self.counts = app, counts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Count a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()
        self.counts.begin()

        async def watched(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", "other")
            self.counts.end(path, status, time.perf_counter() - begun)


def _quoted(text: str) -> str:
    """A label's value.

    >>> _quoted('a"b')
    'a\\\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
