"""Catalogue entries for names in measured tables, by alias, source and family."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from dse.designs import calibrated, catalog
from dse.errors import InputError, nearest
from dse.measured.table import DEVICE_COLUMNS, Row, Skip
from dse.types import Accelerator, ExpertKernels, Software, System, Workload
from dse.types.paths import build

#: Note on rows for which a stack is the nearest one (:meth:`Lookup.is_nearest`).
NEAREST = "by the nearest stack: none of its release"


_SOFTWARE = functools.partial(catalog.record, Software)


class Lookup:
    """Cached catalogue look-ups."""

    def __init__(self, software: Callable[[str], Software] = _SOFTWARE) -> None:
        """Use ``software`` to look up stacks by slug, by default the catalogue's."""
        self.workload: Callable[[str], Workload] = functools.cache(functools.partial(catalog.record, Workload))
        self.system: Callable[[str], System] = functools.cache(functools.partial(catalog.record, System))
        self.software: Callable[[str], Software] = functools.cache(software)
        self.default_software: Callable[[str, str], str] = functools.cache(
            lambda system, workload: catalog.default_software(system, workload=workload)
        )
        self.foreign: Callable[[str, str], object] = functools.cache(catalog.vendor_mismatch)
        self.exists_for: Callable[[str, str], bool] = functools.cache(catalog.exists_for)
        self.engine_of_vendor: Callable[[str, str], str] = functools.cache(catalog.engine_of_vendor)
        self.mapping_defaults: Callable[..., catalog.Values] = functools.cache(catalog.mapping_defaults)
        self.expert_kernels: Callable[[str], ExpertKernels] = functools.cache(
            lambda slug: build(ExpertKernels, catalog.expert_kernels(slug))
        )
        self.expert_options: Callable[[str], catalog.Values] = functools.cache(catalog.expert_options)
        self.serving_defaults: Callable[[str], catalog.Values] = functools.cache(catalog.serving_defaults)
        self.entry: Callable[[str, str], catalog.Entry] = functools.cache(catalog.entry)
        self.resolve: Callable[[str, str], str] = functools.cache(self._resolve)
        self.slug_by_name: Callable[[str], dict[str, str]] = functools.cache(catalog.name_to_slug)

    def _resolve(self, kind: str, name: str) -> str:
        """Return the slug of a name, "" if the catalogue has none."""
        try:
            return catalog.resolve(kind, name) if name else ""
        except InputError:
            return ""

    def suggestion(self, kind: str, name: str) -> str:
        """Return as text an unknown name, followed by up to three similar slugs of the catalogue."""
        similar_names = nearest(name, self.slug_by_name(kind), count=6)
        slugs = list(dict.fromkeys(self.slug_by_name(kind)[similar_name] for similar_name in similar_names))[:3]
        return f"{name}; did you mean {' or '.join(slugs)}?" if slugs else name

    @functools.cached_property
    def kernel_families(self) -> dict[object, str]:
        """(matrix rates, cores) → kernel family of that accelerator."""
        family_by_rates: dict[object, str] = {}
        for slug in catalog.readable_names("accelerator"):
            device, entry = catalog.record(Accelerator, slug), self.entry("accelerator", slug)
            kernels = str(entry.value("kernels.family", "generic"))
            kernel_family = str(self.entry("kernels", kernels).value("family", kernels))
            family_by_rates[device.matrix_rate, device.cores] = kernels if kernel_family == "generic" else kernel_family
        return family_by_rates

    @functools.cached_property
    def source_prefixes(self) -> list[tuple[str, str, str, str]]:
        """(source prefix, kind, slug, system's accelerator) of systems and stacks.

        Those of stacks for chips of one vendor come first, then the longest prefix.
        """
        prefix_entries, is_for_all = [], {}
        for kind in ("system", "software"):
            for slug in catalog.readable_names(kind):
                entry = catalog.entry(kind, slug)
                device = catalog.resolve("accelerator", entry.value("accelerator")) if kind == "system" else ""
                prefixes = (*entry.measured_sources, *entry.nearest_sources)
                prefix_entries += [(prefix, kind, slug, device) for prefix in prefixes]
                is_for_all[kind, slug] = kind == "system" or not entry.value("vendors", ())
        return sorted(prefix_entries, key=lambda item: (is_for_all[item[1:3]], -len(item[0])))

    def is_nearest(self, stack: str, source: str, note: str = "") -> bool:
        """Return True where a source is in a stack's ``nearest`` but not in its ``sources``."""
        entry = self.entry("software", stack)
        return not any(_matches_source(prefix, source, note) for prefix in entry.measured_sources) and any(
            _matches_source(prefix, source, note) for prefix in entry.nearest_sources
        )

    def is_measured(self, stack: str, source: str) -> bool:
        """Return True where a source is one of a stack's measured ones, or of those that it was fitted to."""
        entry = self.entry("software", stack)
        prefixes = (prefix.partition("|")[0] for prefix in entry.measured_sources)
        return any(_matches_source(prefix, source, "") for prefix in prefixes) or source in entry.value(
            "calibrated.sources", ()
        )

    def slug_of_source(self, kind: str, source: str, accelerator: str = "", note: str = "", chip: str = "") -> str:
        """Return the slug of the system with this accelerator (or the stack) whose ``sources`` match a source, or "".

        ``sources`` are prefixes; ``SOURCE | WORDS`` matches rows of SOURCE with these words in note or device. Stacks
        that do not exist for a ``chip``, a system or accelerator, are passed over.
        """
        return next(
            (
                slug
                for prefix, k, slug, device in self.source_prefixes
                if k == kind and device == accelerator and _matches_source(prefix, source, note)
                if not chip or self.exists_for(slug, chip)
            ),
            "",
        )

    def family_member(self, name: str) -> Workload | None:
        """Return a workload of the same family by the first word (``llama``, ``nemotron``), dense first, or None."""
        members = [self.workload(slug) for slug in self.families.get(family_name(name), ())]
        dense = (w for w in members if w.experts is None and w.recurrent is None and w.sparse is None)
        return next(dense, members[0] if members else None)

    @functools.cached_property
    def families(self) -> dict[str, list[str]]:
        """First word of a name → slugs of the workloads, sorted."""
        slugs_by_family: dict[str, list[str]] = {}
        for slug in catalog.readable_names("workload"):
            slugs_by_family.setdefault(family_name(slug), []).append(slug)
        return slugs_by_family


def _matches_source(prefix: str, source: str, note: str) -> bool:
    """Return True where a source begins with a prefix and the note has the prefix's words."""
    start, _, note_words = (part.strip().lower() for part in prefix.partition("|"))
    return source.lower().startswith(start) and note_words in note.lower()


def family_name(name: str) -> str:
    """Return the first word of a model's name in lower case, "" for none."""
    first_word = re.match(r"[a-z]+", name.lower())
    return first_word[0] if first_word else ""


def accelerator_of(row: Row) -> str:
    """Return the accelerator of a row or of its system.

    Args:
        row: of a measured table.

    Returns:
        Slug of the catalogue; "" if it lacks it.

    >>> from dse.measured.table import Row
    >>> accelerator_of(Row("runs.csv", 2, "", {"gpu": "H100"}))
    'h100-sxm-80gb'
    """
    return accelerator_by_name(row.get(*DEVICE_COLUMNS) or row.get("system"))


@functools.cache
def resolve_accelerator(name: str) -> str:
    """Return the slug of an accelerator as written in tables (``h100_sxm``), or raise Skip for an unknown one."""
    try:
        return catalog.resolve("accelerator", name)
    except InputError:
        raise Skip("unknown accelerator", name) from None


@functools.lru_cache(maxsize=1024)
def accelerator_by_name(name: str) -> str:
    """Return the slug of an accelerator by a name of it or of a system, "" where the catalogue lacks it."""
    try:
        return (catalog.find("accelerator", name) or calibrated.accelerator_of(name)) if name else ""
    except InputError:
        return ""
