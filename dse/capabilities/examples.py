"""``dse examples``: included specifications, with their questions and commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from dse.reports import Column, Line, Option, Report, Table, capability, verbatim
from dse.reports.options import Force
from dse.reports.tables import Section


@capability("Manage", details=("names",))
def examples() -> Report:
    """List the sweeps and searches that come with dse.

    Those of pools too: what each asks, and the command that runs it. Wherever a command takes the file of a
    specification, it takes example:NAME.
    """
    from dse.io.examples import all_examples

    found = all_examples()
    columns = [Column("name", "name", left=True), Column("question", "asks", left=True, prose=True)]
    columns.append(Column("command", "command", hidden=True))
    sections: list[Section] = [line for each in found for line in (Line(each.asks), Line(f"  {each.command}"))]
    sections.append(Line("\ndse examples show NAME prints one with what it has found, and copies it with -o FILE.toml"))
    return Report(found, [*sections, Table("examples", columns, found, show="names")])


@capability("Manage", "examples show")
def examples_show(
    name: Annotated[str, Option(is_argument=True)],
    output: Annotated[Path | None, Option(short="-o", metavar="FILE.toml")] = None,
    force: Force = False,
) -> Report:
    """Print an example, or copy it to a file of your own.

    Args:
        name: Its name, with or without example:.
        output: File to copy it to [default: none].
        force: Replace a file that dse has not written.
    """
    from dse.io import outputs
    from dse.io.examples import find_example

    example = find_example(name)
    text = example.file.read_text(encoding="utf-8")
    document = {**example._asdict(), "text": text, "output": output}
    if output is None:
        return Report(document, [verbatim(text.removesuffix("\n"))])
    with outputs.replacing(output, force) as partial:
        partial.write_text(text, encoding="utf-8")
    return Report(document, files=[output])
