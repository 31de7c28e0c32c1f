"""HTTP of the loop-back address: a path an operation, its OpenAPI schema, and a page that lists them."""

from __future__ import annotations

import asyncio
import hmac
import html
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_thread
import fastapi
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware
from uvicorn.protocols.http.h11_impl import H11Protocol

import dse
from dse.cli.service.worker import WorkerPool, refusal
from dse.errors import InputError
from dse.io import toml
from dse.reports import Capability
from dse.reports.registry import remote_capabilities

#: Names of this machine for itself: pages of others that resolve to it are refused.
HOSTS = ("127.0.0.1", "localhost", "[::1]")

#: Largest body of a request, B, and seconds in which its head, and then its body, have to arrive.
MOST_BYTES, READING = 1_000_000, 10.0

#: Status of an answer → of HTTP; exit status 1 (nothing feasible) is an answer like any other.
_CODES = {2: 422, 3: 503}

_POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
_STYLE = "body{font:1rem/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}code,dt{font-family:monospace}"


def application(workers: WorkerPool, token: str = "") -> fastapi.FastAPI:
    """Build the HTTP application with a POST path per operation, which the workers answer.

    Args:
        workers: processes that answer.
        token: that requests must have; "" for none.
    """
    app = fastapi.FastAPI(
        title="dse",
        version=dse.__version__,
        docs_url=None,
        redoc_url=None,
        on_shutdown=[workers.close],
        description="Time, memory, energy and money of training and serving large language models.",
    )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    app.middleware("http")(_RequestGuard(token))
    app.exception_handler(RequestValidationError)(_validation_problem)
    # A thread waits with each request; those of a few more refuse what finds no place.
    threads = anyio.CapacityLimiter(workers.places + 8)
    for operation in remote_capabilities().values():
        _add(app, operation, workers, threads)

    @app.get("/", include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(_page(), headers=_POLICY)

    return app


def _add(app: fastapi.FastAPI, operation: Capability, workers: WorkerPool, threads: anyio.CapacityLimiter) -> None:
    """Add the POST path of an operation to the application."""

    async def call(request: Any) -> JSONResponse:
        body = request.model_dump(by_alias=True, exclude_unset=True, mode="json")
        reply = await anyio.to_thread.run_sync(workers.ask, operation.key, body, limiter=threads)
        retry_after = reply.pop("retry_after", None)
        return JSONResponse(
            reply, _CODES.get(reply["status"], 200), {"Retry-After": str(retry_after)} if retry_after else None
        )

    call.__annotations__ = {"request": operation.request}
    summary, _, description = operation.help.partition("\n\n")
    app.post(f"/{operation.key}", summary=summary, description=description, operation_id=operation.key)(call)


class _RequestGuard:
    """Middleware that answers with an error to requests without the token, from other pages, or with bad bodies."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    async def __call__(
        self, request: fastapi.Request, following: Callable[..., Awaitable[fastapi.Response]]
    ) -> fastapi.Response:
        length = request.headers.get("content-length", "")
        host, colon, end = request.headers.get("origin", "").removeprefix("http://").rpartition(":")
        if (colon or end) and (host or end) not in HOSTS:
            return _problem(403, "Origin", request.headers["origin"], "programs of this machine", "call from there")
        if not self._admits(request):
            fix, headers = "send the token of the server's start", {"WWW-Authenticate": "Bearer"}
            return _problem(401, "Authorization", "no token, or another one", "Bearer TOKEN", fix, headers)
        if request.method == "POST" and not (length.isascii() and length.isdigit()):
            return _problem(411, "Content-Length", "none", "a length in bytes", "send it")
        if len(length) > 9 or int(length or 0) > MOST_BYTES:
            return _problem(413, "body", f"{length[:20]} B", f"up to {MOST_BYTES:,} B", "send less at a time")
        if request.method == "POST":
            try:
                _check(await asyncio.wait_for(request.body(), READING), request.url.path.strip("/"))
            except TimeoutError:
                got, headers = f"less than {length} B in {READING:g} s", {"Connection": "close"}
                return _problem(408, "body", got, "all of it by then", "send it at once", headers)
            except InputError as error:
                return _problem(422, error.where, error.got, error.allowed, error.fix)
        return await following(request)

    def _admits(self, request: fastapi.Request) -> bool:
        """Return True for a request with the token, and for any where none is set."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        sent_token = token.strip().encode() if scheme.lower() == "bearer" else b""
        return not self._token or hmac.compare_digest(sent_token, self._token)


def _check(body: bytes, where: str) -> None:
    """Raise an InputError for JSON with too many levels or digits, or no UTF-8; other invalid JSON passes."""
    try:
        toml.check(json.loads(body), f"{where}: body")
    except json.JSONDecodeError:  # said with its place by what follows, as is another type of content
        return
    except RecursionError:
        raise InputError(
            f"{where}: body",
            "brackets nested too deep",
            f"at most {toml.DEEPEST} levels",
            "close brackets where they end",
        ) from None
    except UnicodeDecodeError:
        raise InputError(f"{where}: body", "no UTF-8", "one JSON object", "send UTF-8") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{where}: body", "a number of thousands of digits", "whole numbers of at most 64 bits", "write it as 1e30"
        ) from None


class TimedProtocol(H11Protocol):
    """HTTP of a connection that is closed if the head of a request takes longer than ``READING``."""

    def connection_made(self, transport: Any) -> None:
        """Start the clock of a new connection."""
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        self.loop.call_later(READING, self._close_if_slow)

    def on_response_complete(self) -> None:
        """Restart the clock when an answer is written: the next request may begin."""
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _close_if_slow(self) -> None:
        """Close the connection if the head of its next request is late, else look again later."""
        if self.transport.is_closing():
            return
        is_answering = self.cycle is not None and not self.cycle.response_complete
        remaining_s = READING if is_answering else self._waits_since + READING - self.loop.time()
        if remaining_s > 0.0:
            self.loop.call_later(remaining_s, self._close_if_slow)
        else:
            self.transport.close()


async def _validation_problem(request: fastapi.Request, error: Any) -> fastapi.Response:
    """Return the response to a request that its schema does not allow."""
    first = error.errors()[0]
    if isinstance(first.get("input"), bytes):
        kind = request.headers.get("content-type", "none")
        return _problem(422, "Content-Type", kind[:200], "application/json", "send this header with the JSON object")
    if first["type"] == "json_invalid":
        where = f"{request.url.path.strip('/')}: body"
        return _problem(422, where, f"no JSON: {first['ctx']['error']}", "one JSON object", "check quotes and commas")
    where = ": ".join([request.url.path.strip("/"), *map(str, first["loc"][1:])])
    return _problem(422, where, repr(first.get("input"))[:200], first["msg"], "see /openapi.json")


def _problem(
    code: int, where: str, got: str, allowed: str, fix: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    """Return the JSON response of an error in four parts, with an HTTP status code."""
    return JSONResponse(refusal(2, where, got, allowed, fix), code, headers)


def _page() -> str:
    """Return the HTML text of the page of operations and fields of their requests."""
    parts = []
    for operation in remote_capabilities().values():
        schema = operation.request.model_json_schema()
        required = schema.get("required", [])
        fields = "".join(
            f"<dt>{html.escape(name)}{'' if name in required else '?'}</dt>"
            f"<dd>{html.escape(field.get('description', ''))}</dd>"
            for name, field in schema["properties"].items()
        )
        head = f"<h2><code>POST /{operation.key}</code></h2><p>{html.escape(operation.help)}</p>"
        parts.append(f"{head}<dl>{fields}</dl>")
    schema_link = 'Schemas: <a href="/openapi.json">/openapi.json</a>. Fields with ? may be left out.'
    return f"<!doctype html><title>dse</title><style>{_STYLE}</style><h1>dse</h1><p>{schema_link}</p>{''.join(parts)}"
