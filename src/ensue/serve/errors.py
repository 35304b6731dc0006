"""How a request is refused: one sentence, in the form that OpenAI's clients read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ensue.serve.schemas import Failure, Problem


class Refused(HTTPException):
    """A request that is not answered, and why."""

    def __init__(self, status: int, message: str, *, param: str | None = None, retry: int | None = None) -> None:
        super().__init__(status, message)
        self.status, self.message, self.param, self.retry = status, message, param, retry


KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "invalid_request_error",
    421: "invalid_request_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
    503: "server_error",
}
SAID: dict[int | str, dict[str, Any]] = {
    status: {"model": Failure, "description": kind.replace("_", " ")} for status, kind in KINDS.items()
}
"""For the description of the API: every refusal has one form."""


def failure(refused: Refused) -> Failure:
    """What is told of a refused request."""
    kind = KINDS.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error")
    return Failure(error=Problem(message=refused.message, type=kind, param=refused.param, code=None))


def answer(refused: Refused, more: Mapping[str, str] | None = None) -> JSONResponse:
    """The response to a refused request."""
    headers = dict(more or {}) | ({"Retry-After": str(refused.retry)} if refused.retry is not None else {})
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(failure(refused).model_dump(), status_code=refused.status, headers=headers)
