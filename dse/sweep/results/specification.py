"""The specification that results carry, of a sweep or of a search."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

from dse.doors import Study
from dse.errors import InputError
from dse.spec import SweepSpec, sweep
from dse.sweep.results.layout import OF_SEARCH
from dse.sweep.results.schema import SPECIFICATION

if TYPE_CHECKING:
    import xarray as xr

    from dse.spec.search import Interval

#: Name of such a specification in errors.
_FILE = "specification of the results"

#: Global attribute of searches alone.
_METHODS = "methods"


class Specification(NamedTuple):
    """What was evaluated: the designs, and of a search the axes that it varied continuously."""

    spec: SweepSpec
    intervals: tuple[Interval, ...] = ()  #: labels of these axes in results are any values within them


def specification_of(results: xr.Dataset, study: Study | None = None) -> Specification:
    """Return the specification of results.

    Args:
        results: a dataset of :func:`dse.run`, :func:`dse.open_results` or a search, or a selection of it.
        study: that of the designs, by default by the sections of the specification.

    Raises:
        InputError: for results without a specification, or with one that is no longer valid.
    """
    if SPECIFICATION not in results.attrs:
        raise InputError(
            "results", f"no attribute {SPECIFICATION!r}", "what dse run wrote", "run the sweep: dse run SWEEP.toml"
        )
    is_search = OF_SEARCH[0] in results.dims or _METHODS in results.attrs
    return _parsed(str(results.attrs[SPECIFICATION]), is_search, study)


@functools.lru_cache(maxsize=8)
def _parsed(text: str, is_search: bool, study: Study | None) -> Specification:
    """Return the specification of a text in TOML, of a search or of a sweep."""
    if not is_search:
        return Specification(sweep.from_text(text, _FILE, study))
    from dse.spec import search

    search_spec = search.from_text(text, _FILE)
    return Specification(search_spec.sweep, search_spec.intervals)
