"""The web page: static files of the folder ``page``, and Vega's script, bundled once by vl-convert."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import threading
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from ensue.core.forks import free_lock
from ensue.serve.errors import ApiError

FOLDER = Path(__file__).parent / "page"
CHARTS = "vega.js"
"""The script that draws charts; bundling it takes a while."""
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page."""

    content: bytes
    media_type: str

    @cached_property
    def compressed(self) -> bytes:
        """The content, compressed with gzip."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def etag(self) -> str:
        """The ETag, with which a browser asks whether its copy is current."""
        return f'"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    def response(self, request: Request) -> Response:
        """The file, compressed if the client accepts it; 304 if the client has it."""
        headers = {"cache-control": "no-cache", "etag": self.etag, "vary": "accept-encoding"}
        if self.etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.content, media_type=self.media_type, headers=headers)
        return Response(self.compressed, media_type=self.media_type, headers={**headers, "content-encoding": "gzip"})


def add_page_routes(app: FastAPI) -> None:
    """Add ``/`` and ``/page/{name}``, and start to bundle the chart script in the background."""
    threading.Thread(target=page_file, args=(CHARTS,), name="charts", daemon=True).start()

    @app.get("/", include_in_schema=False)
    async def root(request: Request) -> Response:
        return await file("index.html", request)

    @app.get("/page/{name}", include_in_schema=False)
    async def file(name: str, request: Request) -> Response:
        page = await run_in_threadpool(page_file, name)
        if page is None:
            raise ApiError(404, "there is no such file")
        return page.response(request)


def page_file(name: str) -> PageFile | None:
    """The file of this name, or None."""
    if name not in _names():
        return None
    with _bundling if name == CHARTS else contextlib.nullcontext():  # bundle it once, also under concurrent requests
        return _read(name)


_bundling = free_lock()


@cache
def _names() -> frozenset[str]:
    """The names that may be read."""
    return frozenset({CHARTS, *(path.name for path in FOLDER.iterdir() if path.suffix in MEDIA_TYPES)})


@cache
def _read(name: str) -> PageFile:
    if name == CHARTS:
        import vl_convert

        return PageFile(vl_convert.javascript_bundle().encode(), MEDIA_TYPES[".js"])  # type: ignore[call-arg]
    path = FOLDER / name
    return PageFile(path.read_bytes(), MEDIA_TYPES[path.suffix])
