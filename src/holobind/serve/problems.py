"""Errors as problem objects (RFC 9457): {"type", "title", "status", "detail"}, also for clients of Annif."""

import json
from http import HTTPStatus
from typing import TYPE_CHECKING

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from holobind.errors import HolobindError

if TYPE_CHECKING:
    from fastapi import FastAPI

MAX_ERRORS = 5  # that one answer lists
MAX_DETAIL_CHARACTERS = 600


class Problem(Exception):  # noqa: N818 - the name of the standard
    """An answer with a status that is not a success."""

    def __init__(self, status: int, detail: str, *, title: str | None = None, retry_after: int | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.title, self.retry_after = status, detail, title, retry_after

    def response(self) -> Response:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == HTTPStatus.UNAUTHORIZED:
            headers["WWW-Authenticate"] = "Bearer"
        body = {
            "type": "about:blank",
            "title": self.title or HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail[:MAX_DETAIL_CHARACTERS],
        }
        return Response(json.dumps(body), self.status, headers, "application/problem+json")


def add_handlers(app: "FastAPI") -> None:
    """Answer every error of a handler by a problem object."""

    async def on_problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def on_http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = Problem(error.status_code, str(error.detail)).response()
        response.headers.update(error.headers or {})
        return response

    async def on_mistake(_: Request, error: Exception) -> Response:
        return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)).response()

    async def on_invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        found = [f"{'.'.join(str(part) for part in e['loc'][1:])}: {e['msg']}" for e in error.errors()[:MAX_ERRORS]]
        return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "; ".join(found)).response()

    app.add_exception_handler(Problem, on_problem)
    app.add_exception_handler(HTTPException, on_http)
    app.add_exception_handler(HolobindError, on_mistake)
    app.add_exception_handler(RequestValidationError, on_invalid)
