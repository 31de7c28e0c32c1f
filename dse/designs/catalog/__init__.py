"""The catalogue: from names to values by path, with sources, and to the records of ``dse.types``.

``hw_catalog/`` has one TOML file per entry; the file's stem is its slug. Names match slugs and aliases by their letters
and digits. A folder of the same layout, given as ``folder`` or in the environment variable ``DSE_CATALOG``, is searched
first. Only requested files are read. Any fault of a name or a file is an :class:`dse.errors.InputError`.

In all functions ``where`` is the place of a name, for errors, and ``folder`` a catalogue to search first. Values are
SI: bytes, seconds, FLOP/s, bytes/s, watts.
"""

from __future__ import annotations

from dse.designs.catalog.entries import NO_NETWORK, Entry
from dse.designs.catalog.filling import Values, check_between, with_prefix
from dse.designs.catalog.load import FOLDERS, catalog_root, find, name_to_slug
from dse.designs.catalog.lookup import entry, kinds, names, record, resolve, values
from dse.designs.catalog.schema import EXPERTS_LEFT_OPEN, LEFT_OPEN
from dse.designs.catalog.sources import check, digest, digests, provenance, reachable_entries, unverified
from dse.designs.catalog.stack_selection import default_software, is_mixture
from dse.designs.catalog.stacks import (
    SERVED_FORMAT,
    expert_kernels,
    expert_options,
    format_note,
    manufacture,
    mapping_defaults,
    served_format,
    serving_defaults,
    vendor_mismatch,
)
from dse.designs.catalog.units import Dimension, dimension, product_dimension, quantity, unit_text
from dse.designs.catalog.unverified import UnverifiedConstant
from dse.designs.catalog.value import TRUTHS, Sourced, bounded, choice, choice_fix

__all__ = [
    "EXPERTS_LEFT_OPEN",
    "FOLDERS",
    "LEFT_OPEN",
    "NO_NETWORK",
    "SERVED_FORMAT",
    "TRUTHS",
    "Dimension",
    "Entry",
    "Sourced",
    "UnverifiedConstant",
    "Values",
    "bounded",
    "catalog_root",
    "check",
    "check_between",
    "choice",
    "choice_fix",
    "default_software",
    "digest",
    "digests",
    "dimension",
    "entry",
    "expert_kernels",
    "expert_options",
    "find",
    "format_note",
    "is_mixture",
    "kinds",
    "manufacture",
    "mapping_defaults",
    "name_to_slug",
    "names",
    "product_dimension",
    "provenance",
    "quantity",
    "reachable_entries",
    "record",
    "resolve",
    "served_format",
    "serving_defaults",
    "unit_text",
    "unverified",
    "values",
    "vendor_mismatch",
    "with_prefix",
]  # fmt: skip
