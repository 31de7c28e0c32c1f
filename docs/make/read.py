"""The page of what is read of other tools' files: ``python -m docs.make.read docs/read.md``, about a minute.

Reads every file of ``tests/corpus`` and compares it with its right values. ``--show NAME`` prints what is not right of
single cases. Earlier scores of the same files are kept in ``tests/corpus/scores.json``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

from benchmarks.recipes import FOLDER, cases, score
from benchmarks.recipes.answers import answer, value_of
from docs.make.command import command, page_parser
from docs.make.markdown import document, publish, table
from dse.tools import TOOLS, option_names
from dse.tools.options import Tool
from dse.tools.recognition import title_of

#: Outcomes, the best first, and what they mean.
OUTCOMES = {
    "right": "every value that the case states is the one that is read, or that the design has by the tool's default",
    "told": "nothing is wrong, and what is missing is named",
    "refused": "one clear error; of files that no reader should take it counts as right",
    "misread": "a value is wrong, or missing without a word",
}

#: Earlier scores, by their name in ``scores.json``.
SCORES = {
    "before": "the reader before this one, with the tool named for it",
    "unseen": "the first complete tables, by writers who had not seen the corpus (what follows scripts had been mended on it)",
    "now": "after the faults of each kind were mended",
}

_INTRODUCTION = """\
# Reading files of other tools

Written by `{command}`. `dse read FILE …` takes recipes, launch scripts, manifests and configurations: with nothing else
said the tool and its version, the model, the chip and the number of devices are recognised. It shows what each option
was read as, whether the design fits, its time with an interval, what is slow, and the changes that buy most; `-o FILE`
writes the same file with them. Nothing of a file is executed.

```console
$ dse read train.sbatch
$ dse read deploy.yaml --role decode -s h200
$ dse read config.json serve.sh -s b200
$ dse read job.toml -n 256 --set micro_batch=2 -o job-2.toml
```

Each option is one of these. **stated**: it decides a value of the design, or names model, chip or devices. **default of
the tool**: the file leaves it out, and the tool takes this value (by its version and chip where these decide). **not
modelled**: the model has no such mechanism; what it would move is said (time, memory, both, or nothing). **unknown**: in
no table of dse. Defaults and effects are rows of `dse/tools/tables`, with their sources."""

_SHELL = """\
## What is followed in a file

Shell scripts are followed as far as their own text says: assignments, arrays of options, `${{X:-8}}`, `$((A * B))`,
heredocs, plain conditions, `case`, the first value of `for`, scripts that call another of the files. A value that needs
the environment, a process or a file stays open, and is named. Configurations may refer to their own values
(`${{model.hidden_size}}`, `${{multiply:4, ${{.hidden_size}}}}`), to variables of the file, and to `env:` of a manifest.
`auto`, `null` and `-1` say nothing where the tool itself computes the value."""

_CORPUS = """\
## Score

{count} cases in {files} files, written anew in the shape of public ones by somebody who had not seen the readers, with
their right values (`tests/corpus`). They were committed before the readers changed. A case is *right*, *told*, *refused*
or *misread*:"""


def tallies() -> tuple[dict[str, str], dict[str, Counter[str]]]:
    """Return (name of a case → outcome, tool → outcomes) of the corpus as it is read now."""
    outcomes, by_tool = dict[str, str](), dict[str, Counter[str]]()
    for case in cases():
        outcome = score(case, answer(case), value_of).outcome
        outcomes[key_of(case)] = outcome
        by_tool.setdefault(group_of(case), Counter())[outcome] += 1
    return outcomes, by_tool


def key_of(case: Mapping[str, str]) -> str:
    """Return the name of a case with its role."""
    return "/".join(filter(None, [case["name"], case.get("role", "")]))


def group_of(case: Mapping[str, str]) -> str:
    """Return the tool of a case, or what it is a file of."""
    return case["tool"] or {"configs": "config.json"}.get(case["folder"], "no tool")


def _score_rows(scores: Mapping[str, Mapping[str, str]]) -> Iterator[list[str]]:
    """Yield a row for each score: its meaning, and the number of cases by outcome."""
    for name, meaning in SCORES.items():
        if name in scores:
            counts = Counter(scores[name].values())
            yield [name, meaning, *(str(counts[outcome]) for outcome in OUTCOMES)]


def _tool_row(tool: Tool) -> list[str]:
    """Return the row of a tool: its version, and the number of its options by what they are."""
    effects = Counter("nothing" if moves == "nothing" else "more" for moves in tool.effects.values())
    read_names = option_names(tool) - tool.effects.keys()
    counts = (len(read_names), len(tool.defaults), effects["more"], effects["nothing"])
    return [title_of(tool.name), tool.version, *map(str, counts)]


def page() -> str:
    """Return the page."""
    kept = json.loads((FOLDER / "scores.json").read_text(encoding="utf-8"))
    outcomes, by_tool = tallies()
    corpus = cases()
    files = {path for case in corpus for path in case["files"]}
    misread = [name for name, outcome in outcomes.items() if outcome == "misread"]
    header = ("tool", *OUTCOMES)
    rows = [[tool, *(str(counts[outcome]) for outcome in OUTCOMES)] for tool, counts in sorted(by_tool.items())]
    return document(
        [
            _INTRODUCTION.format(command=command("docs.make.read")),
            "## Tools",
            table(
                ("tool", "version of its table", "options read", "defaults", "move time or memory", "move nothing"),
                [_tool_row(tool) for tool in TOOLS.values()],
                words=("tool", "version of its table"),
            ),
            _SHELL.format(),
            _CORPUS.format(count=len(corpus), files=len(files)),
            "\n".join(f"- *{outcome}*: {meaning}." for outcome, meaning in OUTCOMES.items()),
            table(("score", "of", *OUTCOMES), _score_rows(kept | {"now": outcomes}), words=("score", "of")),
            "By tool, now:",
            table(header, rows, words=("tool",)),
            f"Misread now: {', '.join(misread)}." if misread else "",
        ]
    )


def main() -> None:
    """Write the page, or print what is not right of single cases."""
    parser = page_parser(__doc__)
    parser.add_argument("--show", metavar="NAME", help="print what is not right of the cases of this name")
    arguments = parser.parse_args()
    if arguments.show:
        for case in cases():
            if arguments.show in case["name"]:
                result = score(case, answer(case), value_of)
                print(key_of(case), result.outcome, result.wrong, result.unnamed)
        return
    publish(arguments.page, page())


if __name__ == "__main__":
    main()
