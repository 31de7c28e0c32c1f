"""The commands for programs: over HTTP and MCP they answer what ``--json`` prints, and name no file."""

import contextlib
import http.client
import itertools
import json
import random
import re
import socket
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import anyio
import pytest
import uvicorn
from mcp import Client
from starlette.testclient import TestClient
from typer.testing import CliRunner

import dse
from dse.capabilities.run import MOST_REMOTE_DESIGNS
from dse.cli import app
from dse.cli.service import web
from dse.cli.service.operations import operation, refuse_files
from dse.cli.service.tools import server
from dse.cli.service.web import MOST_BYTES, TimedProtocol, application
from dse.cli.service.worker import Worker, WorkerPool, answer
from dse.errors import InputError
from dse.reports.registry import remote_capabilities
from dse.spec.sweep import text_of
from tests.conftest import slow
from tests.contract.fuzz.programs import asked
from tests.contract.fuzz.requests import DESIGN, REQUESTS, SWEEP, mutants


class Here(WorkerPool):
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
    document = answer("evaluate", DESIGN)["document"]
    assert document == json.loads(CliRunner().invoke(app, options.split()).stdout)
    basis = document["basis"]
    assert basis["label"] in ("fitted", "extrapolated") and basis["sources"]
    assert set(basis["numbers"]) == set(document["intervals"])


def test_a_sweep_is_answered_as_its_file_and_as_python(tmp_path, monkeypatch):
    """All of the document but what a run has alone; nothing is written but by the command."""
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(text_of(SWEEP))
    options = "run small.toml --keep top:3 --no-figure --no-progress --json"
    printed = json.loads(CliRunner().invoke(app, options.split()).stdout)
    files = sorted(Path().rglob("*"))
    document = answer("run", {"sweep": SWEEP, "keep": "top:3"})["document"]
    report = dse.run(SWEEP, output=False, keep="top:3").dse.report
    assert sorted(Path().rglob("*")) == files
    alone = {"seconds", "rate", "output", "n_programs"}
    documents = [{k: v for k, v in one.items() if k not in alone} for one in (printed, document, report.to_dict())]
    assert documents[0] == documents[1] == documents[2] and printed["output"] == "results/small.nc"
    assert document["output"] is None and report["output"] is None and printed.keys() == document.keys()


def test_a_search_is_answered_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    specification = {**SWEEP, "search": {"method": "random", "evaluations": 64, "seeds": 1}}
    found = answer("search", {"specification": specification, "prove": True, "gap": 0.01})
    assert found["status"] == 0 and found["document"]["any_feasible"] and found["document"]["proof"]["gap"] <= 0.01
    assert not list(tmp_path.iterdir()) and found["document"]["output"] is None


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


def test_truth_values_are_no_numbers(client):
    for ask in (lambda body: answer("evaluate", body), lambda body: client.post("/evaluate", json=body).json()):
        found = ask({**DESIGN, "n_devices": True})
        assert found["status"] == 2 and "n_devices" in found["error"]["where"], found


def test_results_of_this_machine_are_out_of_reach(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.nc").write_text("secret")
    assert answer("decide", {"designs": ["mine.nc"]})["error"]["got"] == "no such file"


def test_no_option_of_an_operation_names_a_file():
    with pytest.raises(InputError, match="paths"):
        refuse_files({**DESIGN, "software": "/tmp/stack.toml"}, "evaluate")
    said = json.dumps([one.request.model_json_schema() for one in remote_capabilities().values()])
    assert '"format": "path"' not in said and '"output"' not in said and "certificate" not in said
    for name in ("run", "search"):
        reasons = {one.key: one.reason_local for one in operation(name).parameters if one.reason_local}
        assert {"output", "fresh", "progress", "force", "figure"} <= reasons.keys() and all(reasons.values())


@pytest.mark.parametrize("count", [50_000, 10_000_000])
def test_a_large_sweep_is_refused(count):
    """Before any design is evaluated: here, or where the specification alone is too large for any door."""
    axes = {
        "memory.bandwidth": {"from": "1 TB/s", "to": "8 TB/s", "count": count},
        "memory.capacity": {"from": "40 GB", "to": "320 GB", "count": count},
    }
    found = answer("run", {"sweep": {**SWEEP, "axes": axes}, "keep": "top:3"})
    assert found["status"] == 2 and found["error"]["where"].startswith("sweep: axes")
    assert count > 50_000 or f"{MOST_REMOTE_DESIGNS:.0e}" in found["error"]["allowed"]


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


#: Bodies that are JSON for a part of what reads them: the place of the fault, and what is told.
ODD_BODIES = {
    "deep": (f'{{"set": {"[" * 20_000}{"]" * 20_000}}}', "body", "nested too deep"),
    "not so deep": (f'{{"sweep": {"[" * 60}{"]" * 60}}}', "body", "nested too deep"),
    "open": ('{"set": ' + "[" * 200_000, "body", "nested too deep"),
    "thousands of digits": (f'{{"workload": "llama-2-7b", "n_devices": {"9" * 5000}}}', "body", "thousands of digits"),
    "hundreds of digits": (f'{{"workload": "llama-2-7b", "n_devices": {"9" * 400}}}', "n_devices", "digits"),
    "no text": (b'{"workload": "\xff"}', "body", "no UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD_BODIES)
@pytest.mark.parametrize("name", ["run", "evaluate"])
def test_odd_bodies_are_refused_in_four_parts(client, name, kind):
    body, place, told = ODD_BODIES[kind]
    found = client.post(f"/{name}", content=body, headers={"Content-Type": "application/json"})
    error = found.json()["error"]
    assert found.status_code == 422 and all(error[part] for part in ("where", "got", "allowed", "fix"))
    assert error["where"].startswith(name) and place in error["where"] and told in error["got"]


@pytest.mark.parametrize(
    ("name", "request_", "where"),
    [
        ("run", {"sweep": {**SWEEP, "axes": {"tp": "nonsense"}}}, "sweep: axes.tp"),
        ("run", {"sweep": {**SWEEP, "sistem": {}}}, "sweep"),
        ("run", {"sweep": {**SWEEP, "axes": {"tp": [3]}}}, "sweep: axes"),
        ("run", {"sweep": {**SWEEP, "axes": {"tp": [10**30]}}}, "run: sweep.axes.tp"),
        ("search", {"specification": {**SWEEP, "search": {"method": "guess"}}}, "specification: search.method"),
        ("predict", {"cases": [{"model": "llama-2-7b", "gpu": "h100", "n_gpus": "many"}]}, ""),
        ("predict", {"cases": [{"frob": 1}]}, "cases"),
    ],
)  # fmt: skip
def test_no_answer_names_a_temporary_file(name, request_, where):
    found = answer(name, request_)
    said = json.dumps(found)
    assert tempfile.gettempdir() not in said and not re.search(r"(sweep|specification|cases)\.(toml|csv)", said)
    assert found["status"] != 2 or found["error"]["where"].startswith(where), found["error"]


def test_answers_name_no_temporary_file_either():
    for name in ("run", "predict"):
        assert tempfile.gettempdir() not in json.dumps(answer(name, REQUESTS[name]))


def test_a_token_is_asked_for_where_there_is_one():
    with TestClient(application(Here(), "secret"), "http://127.0.0.1") as client:
        for given in (None, "secret", "Bearer secre", "Bearer", "Basic secret", "Bearer sécret", "Bearer secret2"):
            found = client.post("/names", json={}, headers={"Authorization": given.encode()} if given else {})
            assert (found.status_code, found.headers["www-authenticate"]) == (401, "Bearer")
            assert all(found.json()["error"].values()) and "secret" not in found.text
        assert client.get("/openapi.json").status_code == 401
        for given in ("Bearer secret", "bearer  secret"):
            found = client.post("/names", json={"kind": "metrics"}, headers={"Authorization": given})
            assert found.status_code == 200
    for token in ("", "two words", "é"):
        done = CliRunner().invoke(app, ["serve-api", "--token", token])
        assert done.exit_code == 2 and "--token" in done.output


class Slow(WorkerPool):
    """Two workers that take as long as a test wants, and the most requests that were at work at once."""

    def __init__(self):
        super().__init__(count=2)
        self.may_go, self.at_work, self.most, self._lock = threading.Event(), 0, 0, threading.Lock()
        for worker in self._workers:
            worker.ask = self._work

    def _work(self, name, request):
        with self._lock:
            self.at_work += 1
            self.most = max(self.most, self.at_work)
        assert self.may_go.wait(60)
        with self._lock:
            self.at_work -= 1
        return {"status": 0, "document": {}, "notes": []}


@pytest.fixture
def served():
    """Workers, and the address of a server that has them."""
    workers, listening = Slow(), socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(application(workers), http=TimedProtocol, log_level="error"))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    yield workers, listening.getsockname()
    workers.may_go.set()
    server.should_exit = True
    thread.join(60)


def posted(address, body=b'{"kind": "metrics"}'):
    """Status and headers of an answer, and the answer."""
    with contextlib.closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("POST", "/names", body, {"Content-Type": "application/json"})
        found = connection.getresponse()
        return found.status, found.headers, json.loads(found.read())


def test_of_two_hundred_clients_at_once_some_wait_and_the_others_are_told(served):
    """Two are answered, 64 wait: the other 134 of 200 are refused while no answer is ready."""
    workers, address = served
    with ThreadPoolExecutor(200) as clients:
        asked = [clients.submit(posted, address) for _ in range(200)]
        refused = [one.result() for one in itertools.islice(as_completed(asked, 60), 134)]
        assert workers.most == 2 and sum(one.done() for one in asked) == 134
        workers.may_go.set()
        answered = [status for status, *_ in (one.result() for one in asked) if status == 200]
    assert len(answered) == 66
    for status, headers, document in refused:
        assert (status, int(headers["Retry-After"])) == (503, 5) and document.keys() == {"status", "error"}
        assert document["error"]["got"].startswith("66 requests before it")


def test_a_client_that_sends_slowly_is_let_go(served, monkeypatch):
    monkeypatch.setattr(web, "READING", 0.3)
    workers, address = served
    workers.may_go.set()
    head = b"POST /names HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 20\r\n\r\n"
    for sent, told in ((b"", b""), (head[:40], b""), (head + b'{"kind"', b"408")):
        with socket.create_connection(address, timeout=30) as client:
            client.sendall(sent)
            assert told in b"".join(iter(lambda: client.recv(4096), b""))
    with socket.create_connection(address, timeout=30) as client:  # the head of a second request
        client.sendall(head + b'{"kind":"metrics"}  ')
        answer_ = b""
        while b"notes" not in answer_:
            answer_ += client.recv(4096)
        client.sendall(head[:40])
        assert b"200 OK" in answer_ and client.recv(4096) == b""


def test_schemas_and_the_page_list_every_operation(client):
    schema, page = client.get("/openapi.json").json(), client.get("/")
    assert {path.strip("/") for path in schema["paths"]} == set(remote_capabilities())
    assert (
        all(f"POST /{name}" in page.text for name in remote_capabilities())
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
    assert {tool.name for tool in tools} == set(remote_capabilities()) and all(tool.description for tool in tools)
    assert found.structured_content == answer("evaluate", DESIGN) and not found.is_error
    assert refused.is_error and "did you mean" in refused.structured_content["error"]["fix"]


def test_requests_of_the_page_are_answered():
    page = (Path(__file__).parents[3] / "docs" / "programs.md").read_text(encoding="utf-8")
    posted = re.findall(r"To `/(\w+)`.*?```json\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in posted] == ["evaluate", "run", "predict"]
    assert all(answer(name, json.loads(body))["status"] == 0 for name, body in posted)
    options = (Path(__file__).parents[3] / "docs" / "options.md").read_text(encoding="utf-8")
    assert "options.md" in page and all(name in options for name in remote_capabilities())


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
        assert found["status"] == 3 and found["error"]["got"] == "more than 0.02 s of work"
        worker._seconds = 60.0
        assert worker.ask("names", {"kind": "metrics"})["status"] == 0
    finally:
        worker.close()
