"""The page of the studies: rows, counts, and a paragraph for each difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from docs.make import ablation
from docs.make.markdown import document, tight_table
from docs.make.studies import energy, offloading, posttraining, serving, training
from docs.make.studies.claim import DIFFERS, SETTING, WORDS, Claim, Row, judged


def claims() -> list[Claim]:
    """Every claim, in the order of the page."""
    return [*training.claims(), *offloading.claims(), *serving.claims(), *posttraining.claims(), *energy.claims()]


_INTRODUCTION = """\
# Claims of published studies

Written by `{command}`. A single name stands for `python -m docs.make.studies --claim NAME`, which prints row and `dse`
commands. Yes is 1, no 0. \\* is from memory: printed, tested by nothing."""


def page(rows: Sequence[Row], command: str) -> str:
    """The page as Markdown."""
    counts = Counter(row.verdict for row in rows)
    words = "\n".join(f"- *{word}* ({counts[word]}): {meaning}" for word, meaning in WORDS.items())
    return document(
        [
            _INTRODUCTION.format(command=command),
            words,
            tight_table(["study", "claim", "command", "ours", "published", "verdict"], map(cells, rows)),
            "## Where it differs",
            "\n".join(_reasons(rows, DIFFERS)),
            "## What was chosen",
            "\n".join(_reasons(rows, SETTING)),
            *ablation.section(),
        ]
    )


def cells(row: Row) -> list[str]:
    """Cells of a row."""
    claim = row.claim
    command = f"`{claim.command or claim.name}`"
    return [claim.study, claim.what, command, row.ours, claim.published, row.verdict]


def _reasons(rows: Sequence[Row], verdict: str) -> Iterator[str]:
    """A line for each reason, with the claims that share it."""
    shared: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict == verdict:
            shared.setdefault(row.why or "Not explained", []).append(row.claim.name)
    for why, names in shared.items():
        yield f"- **{', '.join(names)}**: {why}."


def rows_of(name: str) -> list[Row]:
    """Rows whose claim's name begins so."""
    return [judged(claim) for claim in claims() if claim.name.startswith(name)]
