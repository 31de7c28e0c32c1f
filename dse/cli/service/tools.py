"""The operations as tools of the Model Context Protocol, over standard input and output."""

from __future__ import annotations

import json
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

import dse
from dse.cli.service.worker import Worker
from dse.reports.registry import remote_capabilities

_ABOUT = (
    "Predicts time, memory, energy and money of training and serving large language models on given hardware, and "
    "finds the best mapping exactly. Every prediction of a design has an 80 % interval and a basis: fitted, "
    "extrapolated or uncalibrated; report both with the number. Ask names and catalog for what can be set."
)


def server(worker: Worker) -> Server[Any]:
    """Build the MCP server with a tool per operation, which a worker answers."""
    tools = [
        types.Tool(
            name=name,
            description=operation.help,
            input_schema=operation.request.model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False),
        )
        for name, operation in remote_capabilities().items()
    ]

    async def list_tools(context: Any, request: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=tools)

    async def call_tool(context: Any, request: types.CallToolRequestParams) -> types.CallToolResult:
        reply = await anyio.to_thread.run_sync(worker.ask, request.name, request.arguments or {})
        text = types.TextContent(type="text", text=json.dumps(reply))
        return types.CallToolResult(content=[text], structured_content=reply, is_error="error" in reply)

    return Server("dse", version=dse.__version__, instructions=_ABOUT, on_list_tools=list_tools, on_call_tool=call_tool)


def serve(worker: Worker) -> None:
    """Answer MCP requests on standard input and output until these are closed, then end the worker."""

    async def answer() -> None:
        mcp_server = server(worker)
        async with stdio_server() as (incoming, outgoing):
            await mcp_server.run(incoming, outgoing, mcp_server.create_initialization_options())

    try:
        anyio.run(answer)
    finally:
        worker.close()
