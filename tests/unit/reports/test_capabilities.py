"""One declaration of options, from which Python, the command line, HTTP and MCP take theirs."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from dse.cli.commands import command
from dse.cli.usage import Command, Commands
from dse.errors import InputError
from dse.reports import Option, Report, capability
from dse.reports.options import Settings, Specification
from dse.reports.registry import capabilities


@capability("Ask")
def double(
    number: Annotated[float, Option("A number.", is_argument=True, low=0.0)],
    names: Annotated[Sequence[str] | None, Option("Names.", flag="--on", terminal=list[str])] = None,
    settings: Settings = None,
    file: Annotated[Path | None, Option("A file.")] = None,
    spec: Specification | None = None,
    quiet: Annotated[bool, Option("Say nothing.", local="has nothing to say", remote=True)] = False,
) -> Report:
    """Double a number.

    It is that simple.
    """
    return Report({"double": 2 * number, "names": names, "settings": settings, "quiet": quiet, "spec": spec})


def invoked(*words: str):
    app = typer.Typer(cls=Commands)
    app.command("double", cls=Command)(command(double.capability))
    app.command("other")(lambda: None)
    return CliRunner().invoke(app, ["double", *words])


def test_python_takes_names_of_options_and_leaves():
    assert double(2.0)["double"] == 4.0
    assert double(number="2", on=["a"])["names"] == ["a"], "by the name in requests too"
    assert double(2, tp=8, settings={"pp": 2})["settings"] == {"pp": 2, "tp": 8}
    assert double(2, settings=["pp=2"], tp=8)["settings"] == ["pp=2", "tp=8"]


@pytest.mark.parametrize(
    ("keywords", "got"),
    [({"number": -1}, "-1"), ({"number": "x"}, "x"), ({}, "none"), ({"number": 1, "names": "a"}, "a")],
)
def test_python_refuses_in_four_parts(keywords, got):
    with pytest.raises(InputError) as fault:
        double(**keywords)
    assert fault.value.where.startswith("dse.double") and got in fault.value.got and fault.value.fix


@pytest.mark.parametrize(
    ("keywords", "allowed"),
    [
        ({"number": None}, "a number"),
        ({"number": 1, "names": "a"}, "a list"),
        ({"number": 1, "settings": "tp=8"}, "a dictionary or a list"),
        ({"number": 1, "quiet": "perhaps"}, "true or false"),
    ],
)
def test_what_is_allowed_is_told_in_words_of_people(keywords, allowed):
    with pytest.raises(InputError) as fault:
        double(**keywords)
    assert (fault.value.where, fault.value.allowed) == (f"dse.double: {[*keywords][-1]}", allowed)


@pytest.mark.parametrize("request_", [None, [], "number"])
def test_a_request_is_an_object(request_):
    with pytest.raises(InputError, match="options by name"):
        double.capability.answer(request_)


def test_unknown_details_and_two_formats_are_refused_by_every_renderer():
    for words in (["--json"], ["--csv"], ["--html"], []):
        result = invoked("1", "--show", "nonsense", *words)
        assert result.exit_code == 2 and "'nonsense'" in result.stderr and not result.stdout.strip()
    called = []

    @capability("Ask", name="note")
    def noted(number: Annotated[float, Option("A number.")] = 1.0) -> Report:
        """Note a number."""
        called.append(number)
        return Report({})

    app = typer.Typer(cls=Commands)
    app.command("note", cls=Command)(command(noted.capability))
    app.command("other")(lambda: None)
    assert CliRunner().invoke(app, ["note", "--json", "--csv"]).exit_code == 2 and not called


def test_declared_details_refuse_others_before_the_work():
    @capability("Ask", details=("parts",))
    def late(number: Annotated[float, Option("A number.")] = 1.0) -> Report:
        """Work for long."""
        raise AssertionError("the work has begun")

    app = typer.Typer(cls=Commands)
    app.command("late", cls=Command)(command(late.capability))
    app.command("other")(lambda: None)
    refused = CliRunner().invoke(app, ["late", "--show", "nonsense"])
    assert refused.exit_code == 2 and "--show" in refused.output and "parts" in refused.output


def test_what_an_option_means_may_stand_in_the_docstring():
    def add(first: int, second: Annotated[int, Option(short="-s")] = 2) -> Report:
        """Add numbers.

        All of them.

        Args:
            first: One number,
                over two lines.
            second: Another one [default: 2].
        """
        return Report({"sum": first + second})

    made = capability("Ask")(add).capability
    texts = {option.name: option.option.help for option in made.parameters}
    assert texts == {"first": "One number, over two lines.", "second": "Another one [default: 2]."}
    assert made.help == "Add numbers.\n\nAll of them." and made.parameters[1].option.short == "-s"


@pytest.mark.parametrize("name", list(capabilities()))
def test_every_option_of_every_capability_says_what_it_means(name):
    for option in capabilities()[name].parameters:
        assert option.option.help[:1].isalnum() and option.option.help.endswith((".", "]", "…")), option.name


def test_a_group_of_options_is_declared_once():
    @dataclasses.dataclass(frozen=True)
    class Pair:
        first: Annotated[int, Option("First.")]
        second: Annotated[int, Option("Second.")] = 2

    def add(*, third: Annotated[int, Option("Third.")] = 3, pair: Pair) -> Report:
        """Add."""
        return Report({"sum": pair.first + pair.second + third})

    add.__annotations__ = {"third": Annotated[int, Option("Third.")], "pair": Pair, "return": Report}
    Pair.__annotations__ = {"first": Annotated[int, Option("First.")], "second": Annotated[int, Option("Second.")]}
    made = capability("Ask")(add)
    assert list(inspect.signature(made).parameters) == ["first", "third", "second"], "needed ones first"
    assert made(1)["sum"] == 6 and made(1, second=5, third=0)["sum"] == 6
    assert made.capability.answer({"first": 1, "third": 1})["sum"] == 4


@pytest.mark.parametrize("call", [lambda: double(True), lambda: double.capability.answer({"number": True})])
def test_truth_values_are_no_numbers(call):
    with pytest.raises(InputError, match="allowed a number"):
        call()


def test_a_command_has_the_options():
    assert '"double": 4.0' in invoked("2", "--json").stdout
    found = invoked("2", "--on", "a", "--on", "b", "--set", "tp=8", "--json").stdout
    assert '"b"' in found and '"tp=8"' in found
    assert invoked("-1").exit_code == 2 or invoked("--", "-1").exit_code == 2


def test_options_may_stand_in_a_file(tmp_path):
    file = tmp_path / "options.toml"
    file.write_text('number = 3\non = ["a"]\nset = { tp = 8, overlap_dp = true }\n')
    found = invoked("--request", str(file), "--json").stdout
    assert '"double": 6.0' in found and '"a"' in found and '"overlap_dp=true"' in found
    assert '"double": 8.0' in invoked("4", "--request", str(file), "--json").stdout, "the command line counts first"
    file.write_text("nmber = 3\n")
    found = invoked("--request", str(file))
    assert found.exit_code == 2 and "number" in found.stderr


def test_one_value_of_an_option_that_repeats_may_be_a_text_in_a_file(tmp_path):
    file = tmp_path / "request.json"
    file.write_text('{"number": 1, "on": "a", "set": "tp=8"}')
    found = json.loads(invoked("--request", str(file), "--json").stdout)
    assert (found["names"], found["settings"]) == (["a"], ["tp=8"])


def test_leaves_with_dots_in_a_file_are_leaves(tmp_path):
    file = tmp_path / "request.toml"
    file.write_text("number = 1\n[set]\ntp = 8\nmemory.bandwidth = '4 TB/s'\n")
    result = invoked("--request", str(file), "--json")
    assert json.loads(result.stdout)["settings"] == ["tp=8", "memory.bandwidth=4 TB/s"]


def test_requests_have_no_files_and_no_local_options():
    made = double.capability
    assert set(made.request.model_json_schema()["properties"]) == {"number", "on", "set", "spec"}
    assert made.answer({"number": 1, "set": {"tp": 2}})["settings"] == {"tp": 2}
    assert made.answer({"number": 1})["quiet"] is True, "the value that it has there"
    reasons = {parameter.key: parameter.reason_local for parameter in made.parameters if parameter.reason_local}
    assert reasons == {"file": "names a file of this machine", "quiet": "has nothing to say"}
    with pytest.raises(InputError, match="did you mean 'number'"):
        made.answer({"nmber": 1})


def test_every_parameter_is_declared():
    def bare(number: float) -> Report:
        """Lack an option."""
        return Report({"number": number})

    with pytest.raises(TypeError, match="number has no Option"):
        capability("Ask")(bare)


def test_a_door_takes_a_design():
    @capability("Ask", door="math:sqrt")
    def root(number: Annotated[str, Option("A number.")]) -> Report:
        """Find a root."""
        return Report({"number": number})

    assert root(4.0) == 2.0 and root("4")["number"] == "4"


def test_documents_may_be_dictionaries():
    assert double(1, spec={"axes": {"tp": [1]}})["spec"] == {"axes": {"tp": [1]}}
    assert isinstance(double(1, spec="a.toml")["spec"], Path | Mapping)
