"""``python -m tests.contract.fuzz.programs 10000 [seed]``: so many mutants of requests, asked by a client of MCP.

The client starts ``dse mcp`` as agents do. Each request gets an answer of the command (status 0 or 1), a refusal in
four parts (2), or is told that it takes too long (3). One that ends the server, or that dse itself is at fault for, is
printed.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections import Counter
from typing import Any

import anyio
from mcp import Client, StdioServerParameters

from tests.contract.fuzz.requests import REQUESTS, mutants

#: Mutants between two lines.
_TELL_EVERY = 1000


def fault(found: dict) -> str:
    """What is wrong with an answer; nothing where it is one."""
    if "error" not in found:
        return "" if found.get("status") in (0, 1) and "document" in found else "neither document nor error"
    if set(found["error"]) != {"where", "got", "allowed", "fix"} or found["status"] not in (2, 3):
        return "no error in four parts"
    return found["error"]["got"] if found["status"] == 3 and "more than" not in found["error"]["got"] else ""


#: The server as agents start it.
STARTED = StdioServerParameters(command=sys.executable, args=["-m", "dse", "mcp"])


async def asked(count: int, seed: int, server: Any = STARTED) -> Counter[int]:
    """Ask a server that many mutants; answers by status, faults as -1."""
    statuses: Counter[int] = Counter()
    async with Client(server) as client:
        for done, (name, request) in enumerate(mutants(REQUESTS, count, random.Random(seed)), 1):
            answer = (await client.call_tool(name, request)).structured_content
            wrong = fault(answer or {})
            statuses[-1 if wrong else answer["status"]] += 1
            if wrong:
                print(f"{name}: {wrong}: {json.dumps(request)[:2000]}", flush=True)
            if done % _TELL_EVERY == 0 or done == count:
                print(f"{done:,} requests, by status {dict(sorted(statuses.items()))}", flush=True)
    return statuses


def main() -> int:
    """Ask; 1 where an answer was at fault."""
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    start = time.monotonic()
    statuses = anyio.run(asked, count, seed)
    print(f"{time.monotonic() - start:.0f} s")
    return int(statuses[-1] > 0)


if __name__ == "__main__":
    sys.exit(main())
