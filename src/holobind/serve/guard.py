"""What every request passes: host, token, limits of size, number and time; security headers; metrics."""

import asyncio
import hmac
import logging
import time
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers

from holobind.serve.problems import Problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from holobind.serve.metrics import Metrics
    from holobind.serve.settings import Settings

OPEN_PATHS = ("/healthz", "/readyz", "/", "/symbols")  # without a token: no answer of a model
OPEN_PREFIX = "/static/"
RETRY_SECONDS = 1
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; font-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
RAW_HEADERS = [(name.lower().encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
log = logging.getLogger("holobind.serve")


class Guard:
    """Refuses what is not allowed before any of it reaches a handler."""

    def __init__(self, app: "ASGIApp", settings: "Settings", metrics: "Metrics") -> None:
        self.app, self.settings, self.metrics = app, settings, metrics
        self.buffered = 0

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0

        async def send_guarded(message: "Message") -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *RAW_HEADERS]
                if scope["path"].startswith("/v1"):
                    message["headers"].append((b"cache-control", b"no-store"))
            await send(message)

        self.metrics.running += 1
        try:
            await self._answer(scope, receive, send_guarded)
        except Problem as problem:
            if not status:
                await problem.response()(scope, receive, send_guarded)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status:
                raise
            await Problem(500, "the server made a mistake; its log has the details").response()(
                scope, receive, send_guarded
            )
        finally:
            self.metrics.running -= 1
            route = getattr(scope.get("route"), "path", "other")
            method = scope["method"] if scope["method"] in ("GET", "POST", "HEAD", "OPTIONS") else "other"
            self.metrics.add_request(route, method, status or 499, time.perf_counter() - began)

    async def _answer(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        headers = Headers(scope=scope)
        self._check(scope["path"], headers)
        size = 0
        try:
            async with asyncio.timeout(self.settings.timeout_seconds):
                body = bytearray()
                if scope["method"] not in ("GET", "HEAD"):
                    more = True
                    while more:
                        message = await receive()
                        if message["type"] == "http.disconnect":
                            return
                        chunk, more = message.get("body", b""), message.get("more_body", False)
                        size += len(chunk)
                        self.buffered += len(chunk)
                        self._check_size(size)
                        body += chunk
                await self.app(scope, _replay(bytes(body), receive), send)
        except TimeoutError:
            raise Problem(
                504, f"the request took more than {self.settings.timeout_seconds:g} s", retry_after=RETRY_SECONDS
            ) from None
        finally:
            self.buffered -= size

    def _check(self, path: str, headers: Headers) -> None:
        settings = self.settings
        if not settings.answers(headers.get("host", "")):
            raise Problem(400, "this server does not have the name in the Host header; allow it with --allow-host")
        if settings.needs_token and path not in OPEN_PATHS and not path.startswith(OPEN_PREFIX):
            check_token(settings.token or "", headers)
        if self.metrics.running > settings.max_requests and path not in ("/healthz", "/readyz"):
            raise Problem(
                503, f"{settings.max_requests} requests run already; try again later", retry_after=RETRY_SECONDS
            )
        declared = headers.get("content-length", "0")
        self._check_size(int(declared) if declared.isdecimal() and len(declared) < 20 else settings.max_body_bytes + 1)

    def _check_size(self, size: int) -> None:
        if size > self.settings.max_body_bytes:
            raise Problem(413, f"a request has at most {self.settings.max_body_bytes:,} bytes; send fewer rows")
        if self.buffered > self.settings.max_buffered_bytes:
            raise Problem(503, "too much data is waiting; try again later", retry_after=RETRY_SECONDS)


def check_token(token: str, headers: MutableMapping[str, Any] | Headers) -> None:
    """Raise a `Problem` with status 401 unless the request has the token; the time does not depend on it."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if not hmac.compare_digest(given.strip().encode(), token.encode()) or scheme.lower() != "bearer":
        raise Problem(401, "this server needs a token: Authorization: Bearer TOKEN")


def _replay(body: bytes, receive: "Receive") -> "Receive":
    """The body again, then what the server sends: that the client is gone."""
    given = False

    async def again() -> "Message":
        nonlocal given
        if not given:
            given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again
