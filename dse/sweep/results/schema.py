"""The layout of results files: its version, and what is done to older ones so that today's readers take them.

A file says its version in a global attribute. Files from before there was one have version 0.

====== =====================================================================================================
 0      no attribute; metrics and axes may have the names that ``dse/designs/renamed.py`` lists
 1      ``dse_schema``, ``catalog_entries`` (digest of each entry behind it), ``base_design`` (values by leaf)
====== =====================================================================================================

A reader takes every version up to its own. A later one is refused with the name of what wrote it: what it means by its
names cannot be known here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dse.designs import renamed
from dse.errors import InputError

if TYPE_CHECKING:
    import xarray as xr

#: Group of a file, and key of a dataset's encoding, of the overview of all designs.
OVERVIEW = "overview"

#: Global attribute of a file, and what this package writes there.
ATTRIBUTE, VERSION = "dse_schema", 1


def version(attributes: Mapping[str, Any]) -> int:
    """The version of a file by its global attributes; 0 for one from before there were versions, or of no number."""
    try:
        return int(attributes.get(ATTRIBUTE, 0))
    except (TypeError, ValueError, OverflowError):
        return 0


def check(attributes: Mapping[str, Any], where: str) -> None:
    """That a file is not of a later version than this package knows; else an InputError."""
    found = version(attributes)
    if found > VERSION:
        raise InputError(
            where, f"results of version {found}, written by {attributes.get('source', 'a later dse')}",
            f"versions 0 to {VERSION}", "install the version of dse that wrote it, or a later one",
        )  # fmt: skip


def wrong(where: str, got: str, allowed: str) -> InputError:
    """The error of a file that no run of dse has written."""
    return InputError(where, got, allowed, "run the sweep again, dse run SWEEP.toml, or take an undamaged copy")


def as_now(results: xr.Dataset) -> xr.Dataset:
    """A file's content under the names of today; what is of today is as it was.

    Variables of axes keep the name that their specification has for them; their attribute ``path`` tells the leaf.
    """
    if version(results.attrs) == VERSION:
        return results
    old = {name: renamed.METRICS[name].name for name in map(str, results.variables) if name in renamed.METRICS}
    results = results.rename_vars({name: new for name, new in old.items() if new not in results.variables})
    for variable in results.variables.values():
        if "path" in variable.attrs:
            variable.attrs["path"] = renamed.path(variable.attrs["path"])
    told = [name for name, one in results.variables.items() if any(str(dim).startswith("by_") for dim in one.dims)]
    if told:  # the overview had no group of its own
        found = results[told].reset_coords()
        found = found.drop_vars([name for name in found.variables if name not in told]).drop_attrs(deep=False)
        found, results = found.set_coords([name for name in told if name in found.dims]).load(), results.drop_vars(told)
        results.encoding[OVERVIEW] = found
    for name in ("objective", "objectives"):
        if name in results.attrs:
            results.attrs[name] = renamed.words(results.attrs[name])
    return results
