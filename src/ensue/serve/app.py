"""The FastAPI app: OpenAI's API (``/v1``), our own (``/api``), the web page, ``/health`` and ``/metrics``.

Clients name runs by their served names. The server never opens a file or an address that a client sends.
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
from ensue.serve import schemas
from ensue.serve.errors import ERROR_RESPONSES, ApiError, error_response
from ensue.serve.metrics import MetricsMiddleware, RequestMetrics
from ensue.serve.model_registry import ModelRegistry, without_dashes
from ensue.serve.openai_api import add_openai_routes
from ensue.serve.page import add_page_routes
from ensue.serve.path_names import PathNames
from ensue.serve.security import COOKIE, SecurityMiddleware
from ensue.serve.verbs_api import add_verb_routes
from ensue.serve.views_api import add_view_routes

PLAIN: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
TYPE_ERRORS = ("string_type", "list_type", "int_type")
"""Validation errors of a value whose type does not match at all."""
LOCAL_HOSTS = ("127.0.0.1", "localhost", "[::1]")


def create_app(
    registry: ModelRegistry, *, key: str = "", hosts: tuple[str, ...] = (), any_ip: bool = False
) -> MetricsMiddleware:
    """Create the app for a registry of models.

    ``hosts`` are accepted in the Host header besides localhost; ``any_ip`` also accepts every IP address.
    """
    metrics = RequestMetrics()
    app = FastAPI(title="ensue", version=__version__, docs_url=None, redoc_url=None, responses=ERROR_RESPONSES)
    _add_error_handlers(app, registry.names)
    add_openai_routes(app, registry)
    add_verb_routes(app, registry)
    add_view_routes(app, registry)
    _add_monitoring_routes(app, registry, metrics)
    add_page_routes(app)
    if key:
        _describe_key(app)
    return MetricsMiddleware(SecurityMiddleware(app, hosts=(*LOCAL_HOSTS, *hosts), any_ip=any_ip, key=key), metrics)


def _add_error_handlers(app: FastAPI, names: PathNames) -> None:
    """Answer every exception with an ``ErrorBody`` that shows no path."""

    @app.exception_handler(ApiError)
    async def api_error(request: Request, error: ApiError) -> Response:
        shown = ApiError(error.status, names.message(error.message), param=error.param, retry=error.retry)
        return error_response(shown)

    @app.exception_handler(InputError)
    async def input_error(request: Request, error: InputError) -> Response:
        return error_response(ApiError(400, names.message(without_dashes(str(error)))))

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        field, message = _best_error(error.errors())
        return error_response(ApiError(422, f"{field}: {message}" if field else message, param=field or None))

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> Response:
        return error_response(ApiError(error.status_code, str(error.detail)), error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return error_response(ApiError(500, "internal server error; see the server's log"))  # uvicorn logs it


BODY_ERRORS = {
    "json_invalid": "the body is not JSON",
    "missing": "the body is empty; send a JSON object",
    "model_attributes_type": "the body is not a JSON object",
}
"""Messages about the whole body, by pydantic's types of errors."""


def _best_error(errors: Sequence[Any]) -> tuple[str, str]:
    """The first invalid field and its message; for a union, the message of the type that the value matches best.

    >>> plain = {"loc": ("body", "stop", "str"), "type": "string_type", "msg": "no text"}
    >>> _best_error([plain, {"loc": ("body", "stop", "list"), "type": "too_long", "msg": "at most 4"}])
    ('stop', 'at most 4')
    """
    same_field = [error for error in errors if error["loc"][:2] == errors[0]["loc"][:2]]
    best = max(same_field, key=lambda error: (error["type"] not in TYPE_ERRORS, len(error["loc"])))
    field = _field(best["loc"])
    return field, str(best["msg"]) if field else BODY_ERRORS.get(best["type"], f"the body: {best['msg']}")


def _field(location: tuple[Any, ...]) -> str:
    """The name of a field and the index of its entry, without the types of a union.

    >>> _field(("body", "prompt", "list[constrained-str]", 3)), _field(("body", 17)), _field(("query", "beam"))
    ('prompt.3', '', 'beam')
    """
    names = [part for part in location[1:2] if isinstance(part, str)]
    return ".".join([*names, *(str(part) for part in location[2:] if isinstance(part, int))])


def _add_monitoring_routes(app: FastAPI, registry: ModelRegistry, metrics: RequestMetrics) -> None:
    """Add ``/health`` and ``/metrics``."""

    @app.get("/health")
    async def health() -> schemas.Health:
        return schemas.Health(models=len(registry.models))

    @app.get("/metrics", response_class=Response, responses=PLAIN)
    async def prometheus() -> PlainTextResponse:
        return PlainTextResponse(metrics.text({name: model.load for name, model in registry.models.items()}))


def _describe_key(app: FastAPI) -> None:
    """Add the key to the OpenAPI schema."""
    plain = app.openapi

    def with_key() -> dict[str, Any]:
        schema = plain()
        schema.setdefault("components", {})["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "page": {"type": "apiKey", "in": "cookie", "name": COOKIE},
        }
        schema["security"] = [{"bearer": []}, {"page": []}]
        return schema

    app.openapi = with_key  # type: ignore[method-assign]
