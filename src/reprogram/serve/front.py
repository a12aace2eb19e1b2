"""What every request passes: the token, the headers of every answer, refusals as one sentence, the count and the log."""

import asyncio
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reprogram.errors import first_line
from reprogram.serve.limits import Refusal
from reprogram.serve.service import Service
from reprogram.text import json_text

#: What is answered without a token: the page, which asks for it, and whether the service is alive.
PUBLIC = frozenset(
    ("/", "/page.css", "/page.js", "/favicon.svg", "/docs", "/openapi.json", "/v2/health/live", "/v2/health/ready")
)
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in (
        ("content-security-policy", _POLICY),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-resource-policy", "same-origin"),
        ("permissions-policy", "camera=(self), microphone=(), geolocation=()"),
        ("cache-control", "no-store"),
    )
)
_LOCAL = frozenset(("localhost", "127.0.0.1", "[::1]"))
_QUIET = frozenset(("/v2/health/live", "/v2/health/ready", "/metrics"))  # asked every few seconds: counted, not told


class Front:
    """The outermost part of the application.

    Args:
        app: what answers requests.
        service: whose they are.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        answer = _Answer(send)
        began = time.perf_counter()
        try:
            self._check(scope)
            await self.app(scope, receive, answer)
        except Refusal as refusal:
            await RefusalResponse(refusal)(scope, receive, answer)
        except asyncio.CancelledError:  # the service ends, and has waited for this as long as it waits
            if not answer.status:
                late = Refusal(503, "this service is being ended, and the answer took too long; try again when it is back")
                await RefusalResponse(late)(scope, receive, answer)
        except Exception as fault:  # it was answered in a sentence already
            self.service.journal.tell("fault", where=scope["path"], kind=type(fault).__name__, error=first_line(fault))
        self._count(scope, answer.status, time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if scope["path"] not in PUBLIC and not self.service.admits(_text(headers, b"authorization")):
            raise Refusal(401, "a token is needed; send it as the header Authorization: Bearer TOKEN")
        if scope["method"] in ("PUT", "DELETE") and not self.service.guarded:
            # a page of another site that leads its own name to this machine is not this machine's user
            host = (_text(headers, b"host") or "").rpartition(":")[0] or _text(headers, b"host") or ""
            if host not in _LOCAL:
                raise Refusal(
                    401, "without a token, tasks are changed from this machine alone; start the service with --token"
                )

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "other")
        self.service.metrics.requests.labels(route, str(status)).inc()
        self.service.metrics.seconds.labels(route).observe(seconds)
        if scope["path"] in _QUIET and status < 400:
            return
        state = scope.get("state", {})
        client = scope.get("client") or ("", 0)
        self.service.journal.tell(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            ms=round(1000 * seconds, 1),
            images=state.get("images"),
            client=client[0],
            error=state.get("error"),
        )


class _Answer:
    """What is sent, with our headers."""

    def __init__(self, send: Send) -> None:
        self._send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *_HEADERS]}
        await self._send(message)


async def refused(_: Request, error: Exception) -> Response:
    """The answer to a request that something was wrong with: one sentence in JSON."""
    if isinstance(error, ClientDisconnect):
        refusal = Refusal(499, "the client went away")
    elif isinstance(error, HTTPException):  # of the router: no such path, or no such method
        refusal = Refusal(error.status_code, _of_router(error.status_code))
    elif isinstance(error, Refusal):
        refusal = error
    else:
        refusal = Refusal(500, "a fault of this service, which its log tells of; try again, or tell whoever runs it")
    return RefusalResponse(refusal)


class RefusalResponse(Response):
    """A sentence in JSON, which the log gets, too."""

    def __init__(self, refusal: Refusal) -> None:
        self._sentence = refusal.sentence
        more = {401: {"www-authenticate": "Bearer"}, 429: {"retry-after": "1"}, 413: {"connection": "close"}}
        super().__init__(
            json_text({"error": refusal.sentence}), refusal.status, more.get(refusal.status), "application/json"
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        scope.setdefault("state", {})["error"] = self._sentence
        await super().__call__(scope, receive, send)


def _text(headers: dict[bytes, bytes], name: bytes) -> str | None:
    found = headers.get(name)
    return None if found is None else found.decode("latin-1")


def _of_router(status: int) -> str:
    known: dict[Any, str] = {
        404: "there is nothing at this path; /docs lists what there is",
        405: "this path does not take this method; /docs lists what there is",
    }
    return known.get(status, "the request cannot be answered; /docs lists what there is")
