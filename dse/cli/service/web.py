"""HTTP of the loop-back address: a path an operation, its OpenAPI schema, and a page that lists them."""

from __future__ import annotations

import html
from collections.abc import Awaitable, Callable
from typing import Any

import fastapi
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.middleware.trustedhost import TrustedHostMiddleware

import dse
from dse.cli.service.operations import OPERATIONS, Operation
from dse.cli.service.worker import Worker, refusal

#: Names of this machine for itself: pages of others that resolve to it are refused.
HOSTS = ("127.0.0.1", "localhost", "[::1]")

#: Largest body of a request, B.
MOST_BYTES = 1_000_000

#: Status of an answer → of HTTP; exit status 1 (nothing feasible) is an answer like any other.
_CODES = {2: 422, 3: 503}

_POLICY = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
_STYLE = "body{font:1rem/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}code,dt{font-family:monospace}"


def application(worker: Worker) -> fastapi.FastAPI:
    """The application; its answers are those of a worker."""
    app = fastapi.FastAPI(
        title="dse", version=dse.__version__, docs_url=None, redoc_url=None, on_shutdown=[worker.close],
        description="Time, memory, energy and money of training and serving large language models.",
    )  # fmt: skip
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS))
    app.middleware("http")(_bounded)
    app.exception_handler(RequestValidationError)(_not_valid)
    for operation in OPERATIONS.values():
        _add(app, operation, worker)

    @app.get("/", include_in_schema=False)
    def page() -> HTMLResponse:
        return HTMLResponse(_page(), headers=_POLICY)

    return app


def _add(app: fastapi.FastAPI, operation: Operation, worker: Worker) -> None:
    def call(request: Any) -> JSONResponse:
        found = worker.ask(operation.name, request.model_dump(by_alias=True, exclude_unset=True, mode="json"))
        return JSONResponse(found, _CODES.get(found["status"], 200))

    call.__annotations__ = {"request": operation.request}
    app.post(f"/{operation.name}", summary=operation.about, operation_id=operation.name)(call)


async def _bounded(request: fastapi.Request, following: Callable[..., Awaitable[fastapi.Response]]) -> fastapi.Response:
    """Refuses large bodies, those of unknown length, and what pages of others send."""
    length = request.headers.get("content-length", "")
    origin = request.headers.get("origin", "").removeprefix("http://").rpartition(":")
    if request.method == "POST" and not length.isdigit():
        return _problem(411, "Content-Length", "none", "a length in bytes", "send it")
    if length.isdigit() and int(length) > MOST_BYTES:
        return _problem(413, "body", f"{int(length):,} B", f"up to {MOST_BYTES:,} B", "send less at a time")
    if any(origin) and (origin[0] or origin[2]) not in HOSTS:
        return _problem(403, "Origin", request.headers["origin"], "programs of this machine", "call from there")
    return await following(request)


async def _not_valid(request: fastapi.Request, error: Any) -> fastapi.Response:
    first = error.errors()[0]
    if isinstance(first.get("input"), bytes):
        kind = request.headers.get("content-type", "none")
        return _problem(422, "Content-Type", kind[:200], "application/json", "send this header with the JSON object")
    if first["type"] == "json_invalid":
        where = f"{request.url.path.strip('/')}: body"
        return _problem(422, where, f"no JSON: {first['ctx']['error']}", "one JSON object", "check quotes and commas")
    where = ": ".join([request.url.path.strip("/"), *map(str, first["loc"][1:])])
    return _problem(422, where, repr(first.get("input"))[:200], first["msg"], "see /openapi.json")


def _problem(code: int, where: str, got: str, allowed: str, fix: str) -> JSONResponse:
    return JSONResponse(refusal(2, where, got, allowed, fix), code)


def _page() -> str:
    """Operations and the fields of their requests."""
    parts = []
    for operation in OPERATIONS.values():
        schema = operation.request.model_json_schema()
        needed = schema.get("required", [])
        fields = "".join(
            f"<dt>{html.escape(name)}{'' if name in needed else '?'}</dt>"
            f"<dd>{html.escape(about.get('description', ''))}</dd>" for name, about in schema["properties"].items()
        )  # fmt: skip
        head = f"<h2><code>POST /{operation.name}</code></h2><p>{html.escape(operation.about)}</p>"
        parts.append(f"{head}<dl>{fields}</dl>")
    schema_link = 'Schemas: <a href="/openapi.json">/openapi.json</a>. Fields with ? may be left out.'
    return f"<!doctype html><title>dse</title><style>{_STYLE}</style><h1>dse</h1><p>{schema_link}</p>{''.join(parts)}"
