"""What is shown of a kind of study: words from ``words.toml``, and functions that write texts of a design."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from dse.types import Design
from dse.views.words import WORDS


class MetricColumn(NamedTuple):
    """A metric as a column in tables of designs."""

    heading: str
    metric: str
    style: str  #: ``time``, ``percent``, ``bytes`` or ``number``


@dataclasses.dataclass(frozen=True)
class Presentation:
    """What is shown of a kind of study."""

    secondary_metric: MetricColumn | None = None  #: the metric shown with the first total in figures
    columns: tuple[MetricColumn, ...] = ()  #: metrics in tables of the best designs
    time_columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    #: heading → parts of the first total whose shares such tables show together
    headline: Callable[[Mapping[str, float]], Sequence[str]] = lambda metrics: ()
    #: metrics by name → the headline metrics of one design
    summary: Mapping[str, str] = dataclasses.field(default_factory=dict)  #: metric of a short answer → its words
    settings: Callable[[Design], str] = lambda design: ""  #: how a design works, in one line
    remark: Callable[[str, Mapping[str, float], Design], str] = lambda total, metrics, design: ""
    #: (a total, metrics by name, design) → what a reader of the total's parts should know, in words
    reason_numbers: Callable[[Design, Mapping[str, float]], Mapping[str, str]] = lambda design, metrics: {}
    #: (design, metrics by name) → reason → the numbers behind it in words
    operators_of: str = ""  #: what the operators of a breakdown are those of, in words
    divided_from: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: part of a total → the part that includes it in results of earlier versions


def words_of(study: str) -> dict[str, Any]:
    """Return field of a :class:`Presentation` → words of a kind of study.

    Args:
        study: name of the study, that of its table in ``words.toml``.
    """
    words: dict[str, Any] = WORDS[study]
    columns = tuple(MetricColumn(*column) for column in words["columns"])
    return {**words, "columns": columns, "secondary_metric": MetricColumn(*words["secondary_metric"])}
