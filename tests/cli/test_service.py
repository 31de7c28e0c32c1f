"""The commands for programs: over HTTP and MCP they answer what ``--json`` prints, and name no file."""

import json
import random
import re
from pathlib import Path

import anyio
import pytest
from mcp import Client
from starlette.testclient import TestClient
from typer.testing import CliRunner

from dse.cli import app
from dse.cli.service.operations import MOST_DESIGNS, OPERATIONS
from dse.cli.service.tools import server
from dse.cli.service.web import MOST_BYTES, application
from dse.cli.service.worker import Worker, answer
from dse.errors import InputError
from tests.conftest import slow
from tests.fuzz.programs import asked
from tests.fuzz.requests import DESIGN, REQUESTS, SWEEP, mutants


class Here(Worker):
    """Answers in this process."""

    def ask(self, name, request):
        return json.loads(json.dumps(answer(name, request)))


@pytest.fixture(scope="module")
def client():
    with TestClient(application(Here()), "http://127.0.0.1") as found:
        yield found


@pytest.mark.parametrize("name", REQUESTS)
def test_an_operation_answers(name, client):
    found = client.post(f"/{name}", json=REQUESTS[name])
    assert found.status_code == 200 and found.json()["status"] in (0, 1) and found.json()["document"], found.text


def test_an_answer_is_what_the_command_prints():
    options = "evaluate -w llama-2-7b -s h100 -n 8 --set tp=8 --set global_batch=16 --json"
    printed = json.loads(CliRunner().invoke(app, options.split()).stdout)
    document = answer("evaluate", DESIGN)["document"]
    basis = document.pop("basis")
    assert document == printed
    assert basis["label"] in ("fitted", "extrapolated") and basis["sources"]
    assert set(basis["numbers"]) == set(document["intervals"])


def test_a_design_far_from_rows_is_labelled_so():
    request = {**DESIGN, "n_devices": 100_000, "set": ["tp=8", "global_batch=100000"]}
    far = answer("evaluate", request)["document"]["basis"]
    assert far["label"] == "extrapolated" and far["why"]


@pytest.mark.parametrize(
    "name, request_",
    [
        ("evaluate", {**DESIGN, "workload": "/etc/passwd"}),
        ("evaluate", {**DESIGN, "workload": "../../llama"}),
        ("decide", {"designs": ["~/results.nc"]}),
        ("run", {"sweep": {**SWEEP, "workload": {"name": "./mine.toml"}}}),
        ("evaluate", {**DESIGN, "output": "x.nc"}),
        ("predict", {"cases": []}),
        ("run", {"sweep": {**SWEEP, "title": None}}),
        ("nothing", {}),
    ],
)
def test_files_and_unknown_options_are_refused(name, request_):
    found = answer(name, request_)
    assert found["status"] == 2 and all(found["error"][part] for part in ("where", "got", "allowed", "fix"))


def test_results_of_this_machine_are_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.nc").write_text("secret")
    assert answer("decide", {"designs": ["mine.nc"]})["error"]["got"] == "no such file"


def test_no_option_of_an_operation_names_a_file():
    with pytest.raises(InputError, match="paths"):
        OPERATIONS["evaluate"].arguments({**DESIGN, "software": "/tmp/stack.toml"}, Path())
    said = json.dumps([one.request.model_json_schema() for one in OPERATIONS.values()])
    assert '"format": "path"' not in said and '"output"' not in said


def test_a_large_sweep_is_refused():
    axes = {"memory.bandwidth": {"from": "1 TB/s", "to": "8 TB/s", "count": 50_000},
            "memory.capacity": {"from": "40 GB", "to": "320 GB", "count": 50_000}}  # fmt: skip
    found = answer("run", {"sweep": {**SWEEP, "axes": axes}, "keep": "top:3"})
    assert found["status"] == 2 and f"{MOST_DESIGNS:.0e}" in found["error"]["allowed"]


def test_the_door_is_for_programs_of_this_machine(client):
    assert client.post("/names", json={}, headers={"host": "evil.example"}).status_code == 400
    assert client.post("/names", json={}, headers={"origin": "https://evil.example"}).status_code == 403
    assert client.post("/names", json={}, headers={"origin": "http://localhost:8000"}).status_code == 200
    assert client.post("/names", content=b" " * (MOST_BYTES + 1)).status_code == 413
    assert client.post("/names", content=iter([b"{}"])).status_code == 411


def test_a_body_that_is_no_json_is_told(client):
    found = client.post("/evaluate", content="{", headers={"Content-Type": "application/json"}).json()["error"]
    assert found["where"] == "evaluate: body" and found["got"].startswith("no JSON")
    found = client.post("/evaluate", content="{}", headers={"Content-Type": "text/plain"}).json()["error"]
    assert (found["where"], found["allowed"]) == ("Content-Type", "application/json")


def test_schemas_and_the_page_list_every_operation(client):
    schema, page = client.get("/openapi.json").json(), client.get("/")
    assert {path.strip("/") for path in schema["paths"]} == set(OPERATIONS)
    assert (
        all(f"POST /{name}" in page.text for name in OPERATIONS)
        and "default-src 'none'" in page.headers["content-security-policy"]
    )


def test_tools_of_mcp_answer_alike():
    async def ask():
        async with Client(server(Here())) as client:
            tools = (await client.list_tools()).tools
            found = await client.call_tool("evaluate", DESIGN)
            refused = await client.call_tool("evaluate", {**DESIGN, "system": "h1000"})
            return tools, found, refused

    tools, found, refused = anyio.run(ask)
    assert {tool.name for tool in tools} == set(OPERATIONS) and all(tool.description for tool in tools)
    assert found.structured_content == answer("evaluate", DESIGN) and not found.is_error
    assert refused.is_error and "did you mean" in refused.structured_content["error"]["fix"]


def test_requests_of_the_page_are_answered():
    page = (Path(__file__).parents[2] / "docs" / "programs.md").read_text(encoding="utf-8")
    posted = re.findall(r"To `/(\w+)`.*?```json\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in posted] == ["evaluate", "run", "predict"]
    assert all(answer(name, json.loads(body))["status"] == 0 for name, body in posted)
    assert all(f"`{name}`" in page for name in OPERATIONS)


@pytest.mark.parametrize("count", [40, slow(150)])
def test_mutants_get_an_answer(client, count):
    draw = random.Random(0)
    for name, request in mutants(REQUESTS, count, draw):
        found = client.post(f"/{name}", json=request)
        assert found.status_code in (200, 422), (name, request, found.text)


def test_a_client_of_mcp_gets_an_answer_to_every_mutant():
    statuses = anyio.run(asked, 60, 1, server(Here()))
    assert not statuses[-1] and statuses[0] > 5 and statuses[2] > 20


def test_what_takes_too_long_ends_and_the_next_is_answered():
    worker = Worker(seconds=0.02)
    try:
        found = worker.ask("evaluate", DESIGN)
        assert found["status"] == 3 and "0.02 s" in found["error"]["got"]
        worker._seconds = 60.0
        assert worker.ask("catalog", {"kind": "system"})["status"] == 0
    finally:
        worker.close()
