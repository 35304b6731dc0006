"""The HTTP interface: verbs of ``ensue`` over the runs that are served.

OpenAI's forms (``/v1/…``), our own (``/api/…``), a page for people, ``/health`` and ``/metrics``. No file or address
that a client names is ever opened: runs are found by the names they are served under.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response
from starlette.exceptions import HTTPException

from ensue import __version__
from ensue.core.errors import InputError
from ensue.serve import schemas as forms
from ensue.serve.errors import SAID, Refused, answer
from ensue.serve.guard import COOKIE, Guard
from ensue.serve.metrics import Counted, Counts
from ensue.serve.model_registry import Hall, without_dashes
from ensue.serve.openai_api import add_openai
from ensue.serve.page import add_page
from ensue.serve.verbs_api import add_own
from ensue.serve.views_api import add_views

PLAIN: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
OTHER_TYPES = ("string_type", "list_type", "int_type")
"""How a value is refused that is of another type altogether."""
LOCAL = ("127.0.0.1", "localhost", "[::1]")


def create_app(hall: Hall, *, key: str = "", hosts: tuple[str, ...] = (), numbers: bool = False) -> Counted:
    """The server's app for a hall of runs; ``hosts`` are names beside those of this machine, ``numbers`` lets any
    address of numbers be one.
    """
    counts = Counts()
    app = FastAPI(title="ensue", version=__version__, docs_url=None, redoc_url=None, responses=SAID)
    _add_refusals(app)
    add_openai(app, hall)
    add_own(app, hall)
    add_views(app, hall)
    _add_state(app, hall, counts)
    add_page(app)
    if key:
        _tell_of_key(app)
    return Counted(Guard(app, hosts=(*LOCAL, *hosts), numbers=numbers, key=key), counts)


def _add_refusals(app: FastAPI) -> None:
    """Every refusal in one form."""

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return answer(error)

    @app.exception_handler(InputError)
    async def input_error(request: Request, error: InputError) -> Response:
        return answer(Refused(400, without_dashes(str(error))))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        where, said = _fault(error.errors())
        return answer(Refused(422, f"{where or 'the body'}: {said}", param=where or None))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return answer(Refused(error.status_code, str(error.detail)), error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return answer(Refused(500, "the server failed; its log says how"))  # where uvicorn writes it


def _fault(errors: Sequence[Any]) -> tuple[str, str]:
    """The field that is wrong and what is wrong with it: of a field that may be of several types, what is said of the
    one that it is most like.

    >>> plain = {"loc": ("body", "stop", "str"), "type": "string_type", "msg": "no text"}
    >>> _fault([plain, {"loc": ("body", "stop", "list"), "type": "too_long", "msg": "at most 4"}])
    ('stop', 'at most 4')
    """
    own = [one for one in errors if one["loc"][:2] == errors[0]["loc"][:2]]
    told = max(own, key=lambda one: (one["type"] not in OTHER_TYPES, len(one["loc"])))
    return _where(told["loc"]), str(told["msg"])


def _where(place: tuple[Any, ...]) -> str:
    """The field that is wrong, and which of its entries; not which of its types it was held against.

    >>> _where(("body", "prompt", "list[constrained-str]", 3)), _where(("body", 17)), _where(("query", "beam"))
    ('prompt.3', '', 'beam')
    """
    names = [part for part in place[1:2] if isinstance(part, str)]
    return ".".join([*names, *(str(part) for part in place[2:] if isinstance(part, int))])


def _add_state(app: FastAPI, hall: Hall, counts: Counts) -> None:
    """How the server does."""

    @app.get("/health")
    async def health() -> forms.Health:
        return forms.Health(models=len(hall.served))

    @app.get("/metrics", response_class=Response, responses=PLAIN)
    async def metrics() -> PlainTextResponse:
        return PlainTextResponse(counts.told({name: one.load for name, one in hall.served.items()}))


def _tell_of_key(app: FastAPI) -> None:
    """Let the description say that every path wants the key, and how it is given."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        found = plain()
        found.setdefault("components", {})["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "page": {"type": "apiKey", "in": "cookie", "name": COOKIE},
        }
        found["security"] = [{"bearer": []}, {"page": []}]
        return found

    app.openapi = described  # type: ignore[method-assign]
