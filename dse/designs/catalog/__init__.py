"""The catalogue: from names to values by path, with sources, and to the records of ``dse.types``.

``hw_catalog/`` has one TOML file per entry; the file's stem is its slug. Names match slugs and aliases by their letters
and digits. A folder of the same layout, given as ``folder`` or in the environment variable ``DSE_CATALOG``, is searched
first. Only requested files are read. Any fault of a name or a file is an :class:`dse.errors.InputError`.

In all functions ``where`` is the place of a name, for errors, and ``folder`` a catalogue to search first. Values are
SI: bytes, seconds, FLOP/s, bytes/s, watts.
"""

from __future__ import annotations

from dse.designs.catalog.entries import NO_NETWORK, Entry
from dse.designs.catalog.filling import Values, check_between, within
from dse.designs.catalog.load import FOLDERS, catalog_root, find, known_names
from dse.designs.catalog.lookup import entry, kinds, names, record, resolve, values
from dse.designs.catalog.schema import EXPERTS_LEFT_OPEN, LEFT_OPEN
from dse.designs.catalog.sources import check, digest, digests, provenance, unverified, used
from dse.designs.catalog.stack_selection import default_software, is_mixture
from dse.designs.catalog.stacks import (
    SERVED_FORMAT,
    expert_kernels,
    expert_options,
    foreign,
    format_note,
    made,
    mapping_defaults,
    served_format,
    serving_defaults,
)
from dse.designs.catalog.units import Dimension, combined, dimension, quantity, written
from dse.designs.catalog.unverified import UnverifiedConstant
from dse.designs.catalog.value import TRUTHS, Sourced, bounded, choice, which

__all__ = [
    "EXPERTS_LEFT_OPEN", "FOLDERS", "LEFT_OPEN", "NO_NETWORK", "SERVED_FORMAT", "TRUTHS", "Dimension", "Entry",
    "Sourced", "UnverifiedConstant", "Values", "bounded", "catalog_root", "check", "check_between", "choice",
    "combined", "default_software", "digest", "digests", "dimension", "entry", "expert_kernels", "expert_options",
    "find", "foreign", "format_note", "is_mixture", "kinds", "known_names", "made", "mapping_defaults", "names",
    "provenance", "quantity", "record", "resolve", "served_format", "serving_defaults", "unverified", "used",
    "values", "which", "within", "written",
]  # fmt: skip
