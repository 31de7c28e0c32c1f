"""``dse serve-api`` and ``dse mcp``: the commands for programs."""

from __future__ import annotations

import importlib.util
import os
import re
from typing import Annotated

import typer

from dse.cli.status import report_errors
from dse.errors import InputError
from dse.io import install_extra
from dse.reports.terminal import note

Seconds = Annotated[float, typer.Option(help="Time limit of the work on an answer.", min=1.0, max=3600.0)]


@report_errors
def serve_api(
    port: Annotated[int, typer.Option(help="Port of the loop-back address.", min=1, max=65535)] = 8765,
    seconds: Seconds = 60.0,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="DSE_TOKEN",
            show_envvar=True,
            help="Token that requests must have (Authorization: Bearer TOKEN) [default: none].",
        ),
    ] = None,
) -> None:
    """Answer programs over HTTP of this machine.

    A POST of JSON to /evaluate, /serve, /run, /search, /decide, /plan, /predict and others; / lists them, /openapi.json
    has their schemas. Requests name no files. As many are answered at once as there are processors, 64 more wait.
    """
    if token is not None and not re.fullmatch(r"[!-~]+", token):
        raise InputError(
            "--token",
            "an empty text, or one of other characters",
            "letters, digits and signs, no space",
            'for example --token "$(openssl rand -hex 16)"',
        )
    _check("fastapi", "uvicorn")
    import socket

    import uvicorn

    from dse.cli.service.web import TimedProtocol, application
    from dse.cli.service.worker import WorkerPool

    try:
        listener = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        got = f"{port}: {os.strerror(error.errno or 0)}"
        raise InputError("--port", got, "a free port", "choose another one") from None
    note(f"http://127.0.0.1:{port}")
    app = application(WorkerPool(seconds), token or "")
    uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_level="warning")).run([listener])


@report_errors
def mcp(seconds: Seconds = 60.0) -> None:
    """Answer language models as a server of tools.

    Model Context Protocol over standard input and output; clients start it: {"command": "dse", "args": ["mcp"]}.
    """
    _check("mcp")
    from dse.cli.service.tools import serve
    from dse.cli.service.worker import Worker

    serve(Worker(seconds))


def _check(*packages: str) -> None:
    """Raise an InputError where one of the packages is not installed."""
    if missing := [name for name in packages if importlib.util.find_spec(name) is None]:
        raise InputError(
            "dse", f"{' and '.join(missing)} not installed", "an installation with the extra api", install_extra("api")
        )
