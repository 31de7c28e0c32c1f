"""The page of questions that people had, what dse says to them, and what was measured.

``python -m docs.make.answers docs/answers.md``: asks every question of ``docs/tables/answers.toml``, less than a minute.
``--question NAME`` prints single ones. Nothing of the model is fitted or chosen here.
"""

from __future__ import annotations

import argparse
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer.main

from docs.make.command import command
from docs.make.markdown import document, filed, percent, publish, table
from dse.cli import app
from dse.designs import catalog, leaf_path
from dse.errors import InputError
from dse.io import toml
from dse.io.quantities import digits
from dse.model import main_model, parameter_count
from dse.reports.registry import capabilities
from dse.types import Workload

TABLE = Path(__file__).parents[1] / "tables" / "answers.toml"

#: Unit of an answer → its size in the units of dse.
UNITS = {
    "": 1.0, "s": 1.0, "ms": 1e-3, "GiB": 2.0**30, "GB": 1e9, "tokens/s": 1.0, "requests": 1.0, "J": 1.0, "W": 1.0,
    "%": 1e-2, "G": 1e9, "ratio": 1.0,
}  # fmt: skip

#: Kind of a question → what is asked.
KINDS = {
    "time": "times",
    "rate": "rates",
    "memory": "memory",
    "fit": "does it fit, does it run",
    "energy": "energy and power",
    "order": "which of two is faster, and by how much",
    "setting": "what a file of a tool says",
    "shape": "parameters of a configuration",
}

RIGHT, INSIDE, WRONG = "right", "inside", "wrong"

#: Verdict → its meaning.
VERDICTS = {
    RIGHT: "within the tolerance, which is chosen by the kind of the figure and not by the answer",
    INSIDE: "outside the tolerance, but the 80 % interval of dse has the measured value",
    WRONG: "neither, or dse refuses what ran",
}

#: Text in place of a reason.
NO_REASON = "No reason yet."

#: Kinds whose answer counts although the design is refused.
_WITHOUT_STEP = ("memory", "fit")


class Question(NamedTuple):
    """A question that somebody had.

    Attributes:
        name: unique name, for ``--question``.
        question: the question in one sentence.
        command: words of the ``dse`` command that answers it.
        metric: metric of the answer; ``settings`` of a file, ``parameters`` of a configuration.
        right: measured or right value, in ``unit``; of ``settings`` value by leaf.
        tolerance: relative difference up to which the answer is right.
        kind: key of :data:`KINDS`.
        fitted: True if a fit of dse has seen the figure.
        source: where the value was published.
        unit: key of :data:`UNITS`.
        against: command whose answer divides that of ``command``.
        why: reason why dse is wrong, found by looking.
        files: name → text of the files that the command reads.
    """

    name: str
    question: str
    command: str
    metric: str
    right: Any
    tolerance: float
    kind: str
    fitted: bool
    source: str
    unit: str = ""
    against: str = ""
    why: str = ""
    files: Mapping[str, str] = {}


class Answer(NamedTuple):
    """What dse says to a question: value and ends of the 80 % interval in the question's unit, or a refusal."""

    question: Question
    value: Any = None
    bounds: tuple[float, float] | None = None
    refusal: str = ""

    @property
    def error(self) -> float | None:
        """Value over the right one, less one; None where either is no number."""
        right = self.question.right
        if isinstance(self.value, Mapping) or isinstance(right, Mapping) or not right or self.value is None:
            return None
        return float(self.value) / float(right) - 1.0

    @property
    def verdict(self) -> str:
        """Key of :data:`VERDICTS`."""
        question = self.question
        if self.value is None or (self.refusal and question.kind not in _WITHOUT_STEP):
            return WRONG
        if self.error is None:
            return RIGHT if self.value == question.right else WRONG
        if abs(self.error) <= question.tolerance:
            return RIGHT
        return INSIDE if self.in_interval else WRONG

    @property
    def in_interval(self) -> bool:
        """True if the 80 % interval has the right value; False without an interval."""
        return self.bounds is not None and self.bounds[0] <= self.question.right <= self.bounds[1]


def questions() -> list[Question]:
    """Every question of the table, in its order."""
    return [Question(**row) for row in toml.table(TABLE)["questions"]]


def answer(question: Question) -> Answer:
    """Ask dse a question."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in question.files.items():
            (folder / file).write_text(text, encoding="utf-8")
        try:
            value, bounds, refusal = _value(question, question.command, folder)
            if question.against:
                value, bounds = value / _value(question, question.against, folder)[0], None
        except InputError as error:
            return Answer(question, refusal=f"{error.where}: {error.got}; allowed: {error.allowed}")
    return Answer(question, value, bounds, refusal)


def _value(question: Question, line: str, folder: Path) -> tuple[Any, tuple[float, float] | None, str]:
    """Value and interval in the question's unit, and the reasons why the design cannot run."""
    name, options = _options(line, folder)
    content = capabilities()[name].perform(options).document
    unit = UNITS[question.unit]
    if name == "launch":
        return _leaves(options, content["defaults"] | content["settings"], question.right), None, ""
    if name == "catalog from-config":
        shape = catalog.record(Workload, "model", folder=folder)
        return float(parameter_count(main_model(shape))) / unit, None, ""
    if name == "catalog show":
        return content[0]["values"][question.metric].value / unit, None, ""
    refusal = "; ".join(f"{row['meaning']}: {row['numbers']}" for row in content.get("reasons", ()))
    metrics = content["modes"][0] if name == "posttrain" else content.get("metrics", content)
    value, bounds = metrics[question.metric], content.get("intervals", {}).get(question.metric)
    if value is None:  # a design without a step
        return None, None, refusal
    return value / unit, bounds and (bounds[0] / unit, bounds[1] / unit), refusal


def _options(line: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """Name of a command, and its options as its capability gets them; files lie in the folder."""
    words = shlex.split(line)
    group: Any = typer.main.get_command(app)
    name = ""
    while hasattr(group, "commands") and words[0] in group.commands:
        name, group = f"{name} {words[0]}".strip(), group.commands[words.pop(0)]
    (folder / "workloads").mkdir(exist_ok=True)
    places = {"model.toml": folder / "workloads" / "model.toml"}
    words = [str(places.get(word, folder / word if (folder / word).is_file() else word)) for word in words]
    values = group.make_context(name, words).params
    return name, {parameter.name: values[parameter.name] for parameter in capabilities()[name].parameters}


def _leaves(options: Mapping[str, Any], settings: Mapping[str, float], right: Mapping[str, float]) -> dict[str, float]:
    """Values of the leaves that a question names: as a file states them, else of the design that follows."""
    from dse.tools import tool_of

    texts = shlex.join(f"--set={name}={value:g}" for name, value in settings.items())
    serving = ["--serving"] if tool_of(options["tool"]).study == "serving" else []
    devices = ["-n", str(options["n_devices"])] if options["n_devices"] else []
    line = ["evaluate", "-w", options["workload"], "-s", options["system"], *devices, *serving, "--no-uncertainty"]
    _, values = _options(f"{shlex.join(line)} {texts}", Path("."))
    design = capabilities()["evaluate"].perform(values).document["design"]
    return {name: float(settings.get(name, design.get(leaf_path(name), float("nan")))) for name in right}


# --- the page ---------------------------------------------------------------------------------------------

_INTRODUCTION = """\
# What people asked, what dse says, what was measured

Written by `{command}`.

{count} questions that practitioners put to issue trackers, or that a published run answers: the command that asks dse,
its answer, what was measured or is right, and why dse is wrong where it is. They were chosen for a spread of tools,
chips and models, and rather from sources that no fit has seen ({unseen} of {count}). A figure is *fitted* if a fit has
seen it. Nothing was fitted to these answers. A command says what the source says; the rest is the default of dse.

Tolerances: 10 to 15 % of times, rates and memory in training, 15 to 20 % in serving, 30 % of times to first token, 5 to
10 % of ratios. Commands, tolerances and files: [tables/answers.toml](tables/answers.toml). Errors of all published
rows: [accuracy](accuracy.md), [serving](serving.md)."""


def page(answers: Sequence[Answer], line: str) -> str:
    """The page as Markdown; ``line`` is the command that writes it."""
    unseen = sum(not answer.question.fitted for answer in answers)
    wrong = [answer for answer in answers if answer.verdict == WRONG]
    return document(
        [
            _INTRODUCTION.format(command=line, count=len(answers), unseen=unseen),
            "\n".join(f"- *{word}*: {meaning}" for word, meaning in VERDICTS.items()),
            "## Totals",
            table(["questions", "number", *VERDICTS, "in their 80 % interval"], _totals(answers), ("questions",)),
            _coverage(answers),
            "## Answers",
            "The interval behind a value is that of 80 %; orders, settings, shapes and simulations have none.",
            table(
                ["question", "dse says", "measured or right", "error", "verdict", "fitted"],
                map(cells, answers),
                ("question",),
            ),
            "By question, with command and source: " + filed("answers", _COLUMNS, map(_columns, answers)),
            f"## The {len(wrong)} wrong ones, and why",
            *map(_reason, wrong),
        ]
    )


def _totals(answers: Sequence[Answer]) -> Iterator[list[str]]:
    """A row of counts by kind, by whether the figure is fitted, and of all."""
    groups = {name: [answer for answer in answers if answer.question.kind == kind] for kind, name in KINDS.items()}
    groups |= {"fitted": [answer for answer in answers if answer.question.fitted]}
    groups |= {"not fitted": [answer for answer in answers if not answer.question.fitted], "**all**": list(answers)}
    for name, members in groups.items():
        counts = Counter(member.verdict for member in members)
        intervals = [member for member in members if member.bounds]
        hits = f"{sum(member.in_interval for member in intervals)} of {len(intervals)}" if intervals else "–"
        yield [name, str(len(members)), *(str(counts[verdict]) for verdict in VERDICTS), hits]


def _coverage(answers: Sequence[Answer]) -> str:
    """How many intervals of figures that no fit has seen hold."""
    intervals = [answer for answer in answers if answer.bounds and not answer.question.fitted]
    count = sum(answer.in_interval for answer in intervals)
    share = percent(count / len(intervals), digits=0) if intervals else "none"
    return (
        f"Of {len(intervals)} intervals of figures that no fit has seen, {count} hold the measured value: {share}, where "
        "80 % were promised."
    )


def cells(answer: Answer) -> list[str]:
    """Cells of a row of the page."""
    question = answer.question
    error = (
        "–" if answer.error is None or question.metric == "feasible" else percent(round(answer.error, 2) + 0.0, "+", 0)
    )
    verdict = f"**{answer.verdict}**" if answer.verdict == WRONG else answer.verdict
    right = _text(question, question.right)
    return [question.question, said(answer), right, error, verdict, "yes" if question.fitted else "no"]


def said(answer: Answer) -> str:
    """What dse says, in words."""
    question = answer.question
    if answer.value is None:
        return "refused"
    text = _text(question, answer.value)
    if answer.bounds:
        text += f" ({digits(answer.bounds[0])} to {digits(answer.bounds[1])})"
    return f"cannot run ({text})" if answer.refusal and question.kind not in _WITHOUT_STEP else text


def _text(question: Question, value: Any) -> str:
    """A value as text, with its unit."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={number:g}" for name, number in value.items())
    if question.metric == "feasible":
        return "yes" if value else "no"
    unit = {"G": "10⁹", "ratio": ""}.get(question.unit, question.unit)
    return f"{'× ' if question.unit == 'ratio' else ''}{digits(value)} {unit}".strip()


_COLUMNS = ("question", "kind", "fitted", "unit", "right", "dse", "from", "to", "verdict", "source", "command")


def _columns(answer: Answer) -> list[str]:
    """Cells of a row of the file."""
    question = answer.question
    numbers = [_text(question, question.right), said(answer)]
    if answer.error is not None and question.unit:
        numbers = [f"{number:.6g}" for number in (question.right, answer.value)]
    ends = [f"{end:.6g}" for end in answer.bounds or ()] or ["", ""]
    first = [question.question, question.kind, "yes" if question.fitted else "no", question.unit]
    return [*first, *numbers, *ends, answer.verdict, question.source, f"dse {question.command}"]


def _reason(answer: Answer) -> str:
    """A wrong answer with its reason."""
    question = answer.question
    word = "right is" if question.kind in ("setting", "shape") else "measured"
    heading = f"**{question.question}** dse: {said(answer)}; {word} {_text(question, question.right)}."
    refusal = f" It says: {answer.refusal}." if answer.refusal else ""
    commands = [f"dse {line}" for line in (question.command, question.against) if line]
    return f"{heading}{refusal} {question.why or NO_REASON} Source: {question.source}.\n\n" + "\n".join(
        ["```text", *commands, "```"]
    )


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("page", type=Path, nargs="?", metavar="PAGE.md", help="the page to write")
    what.add_argument("--question", metavar="NAME", help="print the answers to the questions whose names begin so")
    options = parser.parse_args()
    if options.page:
        publish(options.page, page([answer(question) for question in questions()], command("docs.make.answers")))
        return
    for question in questions():
        if question.name.startswith(options.question):
            reply = answer(question)
            print(f"{question.name}: {' | '.join(cells(reply))}\n  dse {question.command}\n  {reply.refusal}")


if __name__ == "__main__":
    main()
