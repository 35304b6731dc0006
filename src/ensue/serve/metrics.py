"""Request counters, in the text format of Prometheus."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

MODEL_METRICS = (("rows_running", "gauge"), ("rows_waiting", "gauge"), ("tokens_total", "counter"))
"""Names and types of the metrics of each model."""


class RequestMetrics:
    """Requests by route and status, their total time, and the number of open ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._open = 0

    def begin(self) -> None:
        """Count a request that starts."""
        with self._lock:
            self._open += 1

    def end(self, path: str, status: int, seconds: float) -> None:
        """Count a request that ends."""
        with self._lock:
            self._open -= 1
            self._requests[path, status] += 1
            self._seconds[path] += seconds  # type: ignore[assignment]

    def text(self, loads: Mapping[str, tuple[int, int, int]]) -> str:
        """All metrics as text; ``loads`` are running rows, waiting rows and generated tokens of each model."""
        with self._lock:
            lines = ["# TYPE ensue_requests_total counter"]
            for (path, status), count in sorted(self._requests.items()):
                lines.append(f'ensue_requests_total{{path="{_quoted(path)}",status="{status}"}} {count}')
            lines.append("# TYPE ensue_request_seconds_total counter")
            for path, seconds in sorted(self._seconds.items()):
                lines.append(f'ensue_request_seconds_total{{path="{_quoted(path)}"}} {seconds:.6f}')
            lines += ["# TYPE ensue_requests_open gauge", f"ensue_requests_open {self._open}"]
        for index, (name, kind) in enumerate(MODEL_METRICS):
            lines.append(f"# TYPE ensue_{name} {kind}")
            lines += [f'ensue_{name}{{model="{_quoted(model)}"}} {load[index]}' for model, load in loads.items()]
        return "\n".join(lines) + "\n"


class MetricsMiddleware:
    """Counts requests per route; unknown routes share the label "other"."""

    def __init__(self, app: Any, metrics: RequestMetrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Count a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        status, start = 500, time.perf_counter()
        self.metrics.begin()

        async def send_and_note_status(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note_status)
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self.metrics.end(path, status, time.perf_counter() - start)


def _quoted(text: str) -> str:
    """The value of a label, escaped.

    >>> _quoted('a"b')
    'a\\\\"b'
    """
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
