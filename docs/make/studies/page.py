"""The page of the studies: rows, counts, and a paragraph for each difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from docs.make import ablation
from docs.make.markdown import document, tight_table
from docs.make.studies import costs, energy, offloading, posttraining, serving, training
from docs.make.studies.claim import (
    AGREES,
    DIFFERS,
    FITTED,
    IDENTITY,
    LAW,
    NOT_CHECKED,
    SETTING,
    WORDS,
    Claim,
    Row,
    judged,
)


def claims() -> list[Claim]:
    """Every claim, in the order of the page."""
    return [
        *training.claims(),
        *offloading.claims(),
        *serving.claims(),
        *posttraining.claims(),
        *energy.claims(),
        *costs.claims(),
    ]


_INTRODUCTION = """\
# Claims of published studies

Written by `{command}`. A single name stands for `python -m docs.make.studies --claim NAME`, which prints row and `dse`
commands. Yes is 1, no 0. “–”: the study has no figure. Tolerances are shares of the figure; “≥” and “>” hold up to a fifth
above, since who has more says so. \\* is from memory: printed, judged by nothing. {count} claims:"""

#: Verdicts that say nothing without a reason.
NEED_A_REASON = (DIFFERS, SETTING, FITTED)

#: Heading of the reasons → the verdicts whose claims they are of.
_REASONS = {
    "Where it differs": (DIFFERS,),
    "What was chosen": (SETTING,),
    "What was fitted": (FITTED,),
    "What else to know": (AGREES, LAW, IDENTITY, NOT_CHECKED),
}


def page(rows: Sequence[Row], command: str) -> str:
    """The page as Markdown."""
    counts = Counter(row.verdict for row in rows)
    words = "\n".join(f"- *{word}* ({counts[word]}): {meaning}" for word, meaning in WORDS.items())
    reasons = [part for heading, of in _REASONS.items() for part in (f"## {heading}", "\n".join(_reasons(rows, of)))]
    return document(
        [
            _INTRODUCTION.format(command=command, count=len(rows)),
            words,
            tight_table(["study", "claim", "command", "ours", "published", "verdict"], map(cells, rows)),
            *reasons,
            *ablation.section(),
        ]
    )


def cells(row: Row) -> list[str]:
    """Cells of a row."""
    claim = row.claim
    command = f"`{claim.command or claim.name}`"
    return [claim.study, claim.what, command, row.ours, claim.published, row.verdict]


def _reasons(rows: Sequence[Row], verdicts: Sequence[str]) -> Iterator[str]:
    """A line for each reason, with the claims that share it."""
    shared: dict[str, list[str]] = {}
    for row in rows:
        if row.verdict in verdicts and (row.why or row.verdict in NEED_A_REASON):
            shared.setdefault(row.why or "Not explained", []).append(row.claim.name)
    for why, names in shared.items():
        yield f"- **{', '.join(names)}**: {why}."


def rows_of(name: str) -> list[Row]:
    """Rows whose claim's name begins so."""
    return [judged(claim) for claim in claims() if claim.name.startswith(name)]
