"""The catalogue: from names to values by path, with sources, and to the records of ``dse.types``.

It answers what a name stands for, what a file states and where from, and which stack a design gets that names none. It
knows what files may hold (``schema.toml``, with the leaves of the types), units (``units.py``), what files leave out
(``defaults.py``) and the keys of Hugging Face's configurations (``huggingface.toml``). Start with ``lookup.py``.

``hw_catalog/`` has one TOML file per entry; the file's stem is its slug. Names match slugs and aliases by their letters
and digits. A folder of the same layout, given as ``folder`` or in the environment variable ``DSE_CATALOG``, is searched
first. Any fault of a name or of a requested file is an :class:`dse.errors.InputError`; faulty files of a user that no
name needs are left out, with one :class:`dse.errors.Notice`.

In all functions ``where`` is the place of a name, for errors, and ``folder`` a catalogue to search first. Values are
SI: bytes, seconds, FLOP/s, bytes/s, watts.
"""

from __future__ import annotations

from dse.designs.catalog.defaults import clock_share as clock_share
from dse.designs.catalog.entries import NO_NETWORK, Entry
from dse.designs.catalog.faults import readable_names as readable_names
from dse.designs.catalog.filling import Values, check_between as check_between, with_prefix as with_prefix
from dse.designs.catalog.load import (
    FOLDERS,
    added_folder as added_folder,
    catalog_root as catalog_root,
    find,
    name_to_slug as name_to_slug,
)
from dse.designs.catalog.lookup import entry, kinds, names, record, resolve, values
from dse.designs.catalog.schema import EXPERTS_LEFT_OPEN, LEFT_OPEN
from dse.designs.catalog.sources import (
    check,
    digest as digest,
    digests as digests,
    provenance as provenance,
    reachable_entries as reachable_entries,
    unverified as unverified,
)
from dse.designs.catalog.stack_selection import (
    default_software,
    engine_of_vendor as engine_of_vendor,
    exists_for as exists_for,
    is_mixture as is_mixture,
)
from dse.designs.catalog.stacks import (
    SERVED_FORMAT,
    expert_kernels as expert_kernels,
    expert_options as expert_options,
    format_note,
    manufacture,
    mapping_defaults,
    served_format as served_format,
    serving_defaults,
    vendor_mismatch as vendor_mismatch,
)
from dse.designs.catalog.units import (
    Dimension,
    dimension as dimension,
    product_dimension as product_dimension,
    quantity,
    unit_text as unit_text,
)
from dse.designs.catalog.unverified import UnverifiedConstant as UnverifiedConstant
from dse.designs.catalog.value import (
    TRUTHS,
    Sourced as Sourced,
    bounded as bounded,
    choice as choice,
    choice_fix as choice_fix,
)

__all__ = [
    "EXPERTS_LEFT_OPEN",
    "FOLDERS",
    "LEFT_OPEN",
    "NO_NETWORK",
    "SERVED_FORMAT",
    "TRUTHS",
    "Dimension",
    "Entry",
    "Values",
    "check",
    "default_software",
    "entry",
    "find",
    "format_note",
    "kinds",
    "manufacture",
    "mapping_defaults",
    "names",
    "quantity",
    "record",
    "resolve",
    "serving_defaults",
    "values",
]  # fmt: skip
