"""Errors of the API, as the JSON that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ensue.serve.schemas import ErrorBody, ErrorDetail


class ApiError(HTTPException):
    """An error response: a status, a message and the field that is at fault."""

    def __init__(self, status: int, message: str, *, param: str | None = None, retry: int | None = None) -> None:
        super().__init__(status, message)
        self.status, self.message, self.param, self.retry = status, message, param, retry


ERROR_TYPES = {
    **dict.fromkeys((400, 405, 413, 421, 422), "invalid_request_error"),
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    408: "timeout_error",
    429: "rate_limit_error",
    503: "server_error",
}
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": kind.replace("_", " ")} for status, kind in ERROR_TYPES.items()
}
"""For the OpenAPI schema."""


def error_body(error: ApiError) -> ErrorBody:
    """The JSON body of an error."""
    kind = ERROR_TYPES.get(error.status, "server_error" if error.status >= 500 else "invalid_request_error")
    return ErrorBody(error=ErrorDetail(message=error.message, type=kind, param=error.param, code=None))


def error_response(error: ApiError, extra_headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The response for an error."""
    headers = dict(extra_headers or {}) | ({"Retry-After": str(error.retry)} if error.retry is not None else {})
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(error_body(error).model_dump(), status_code=error.status, headers=headers)
