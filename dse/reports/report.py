"""What a capability returns: a document, and the tables and lines in which people read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dse.errors import unknown_name
from dse.reports.tables import Section, Table
from dse.reports.values import plain_values

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

#: Exit status where nothing is feasible, or nothing matches.
NOTHING_FEASIBLE = 1

#: Name of all details.
ALL = "all"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Report(Mapping[str, Any]):
    """Answer of a capability, a mapping of its document: ``report["metrics"]``.

    A terminal, JSON, CSV and HTML are four renderers of it (:mod:`dse.reports`).

    >>> from dse.reports import Column, Report, Table
    >>> table = Table("designs", [Column("step", "step_time", "{:.1f} s".format, left=True)], [{"step_time": 1.25}])
    >>> report = Report({"step_time": 1.25}, [table])
    >>> report["step_time"], report.to_dict(), report.table().cells()
    (1.25, {'step_time': 1.25}, [['1.2 s']])
    >>> print(report)
    step
    ─────
    1.2 s
    """

    document: Any  #: values by name as records, lists and numbers, in SI units
    sections: Sequence[Section] = ()
    notes: Sequence[str] = ()  #: remarks, which a terminal prints on standard error
    figures: Sequence[Path] = ()  #: files of figures
    files: Sequence[Path] = ()  #: other files, written
    status: int = 0  #: exit status of the command: 1 where nothing is feasible
    load: Callable[[], xr.Dataset] | None = None  #: opens the labelled results
    usage: str = ""  #: how what was written is used: the last line

    def __getitem__(self, name: str) -> Any:
        return self.document[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.document)

    def __len__(self) -> int:
        return len(self.document)

    @property
    def dataset(self) -> xr.Dataset:
        """Labelled results.

        Raises:
            AttributeError: if the capability has none.
        """
        if self.load is None:
            raise AttributeError("this report has no dataset")
        return self.load()

    @property
    def tables(self) -> dict[str, Table]:
        """Name → table, in the order of reading."""
        return {section.name: section for section in self.sections if isinstance(section, Table)}

    @property
    def details(self) -> list[str]:
        """Names of the details that are shown on request."""
        return list(dict.fromkeys(section.show for section in self.sections if section.show))

    def table(self, name: str | None = None) -> Table:
        """Return a table, by default the first.

        Raises:
            InputError: if there is no such table.
        """
        if name is None and self.tables:
            return next(iter(self.tables.values()))
        if name not in self.tables:
            raise unknown_name("table", str(name), self.tables, "tables of this report")
        return self.tables[str(name)]

    def to_dict(self) -> Any:
        """Return the document as dictionaries, lists, texts and numbers: what ``--json`` prints."""
        return plain_values(self.document)

    def to_dataframe(self, table: str | None = None) -> pd.DataFrame:
        """Return a table (by default the first) as a data frame, in SI units."""
        import pandas as pd

        return pd.DataFrame(self.table(table).values())

    def to_csv(self, table: str | None = None) -> str:
        """Return a table (by default the first) as CSV text, in SI units."""
        from dse.reports.csv import csv_text

        return csv_text(self.table(table))

    def to_html(self) -> str:
        """Return the report as a piece of HTML."""
        from dse.reports.html import html_text

        return html_text(self)

    def _repr_html_(self) -> str:
        return self.to_html()

    def __str__(self) -> str:
        from dse.reports.terminal import plain_text

        return plain_text(self)

    __repr__ = __str__

    def selected(self, shown: Sequence[str] = ()) -> list[Section]:
        """Return the sections that are shown, with those of the named details.

        Args:
            shown: names of details, or ``all``.

        Raises:
            InputError: for a name that is none of the report's details.
        """
        for name in shown:
            if name not in (ALL, *self.details):
                raise unknown_name("--show", name, [*self.details, ALL], "details")
        return [section for section in self.sections if not section.show or section.show in shown or ALL in shown]
