"""Records of all that dse says: results of the standard sweeps, documents of commands, generated pages.

``python -m tests.contract.golden.records`` compares what dse says now with the records, ``--write NAME …`` writes them
anew: whoever does it reads the differences first, and says in the commit what moved and why. A name that ends in ``*``
is of all that begin so. Kinds of records are ``sweep``, ``document`` and ``page``; each record is a file in ``data``.

Searches follow comparisons of numbers in single precision, so that on another kind of processor, or with another
version of JAX, they may end elsewhere. There the revision before a change writes records, and the change is compared.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.contract.golden.records import documents, pages, sweeps
from tests.contract.golden.records.differences import TOLERANCE, Difference, differences

DATA = Path(__file__).parent / "data"

#: Kind → names of its records, and what takes one.
KINDS = {
    "sweep": (sweeps.names, sweeps.record),
    "document": (documents.names, documents.record),
    "page": (pages.names, pages.record),
}

#: Records that take a few seconds together, without a program to compile.
QUICK = (
    "document/evaluate-dense-eager-attention",
    "document/evaluate-experts-latent-attention-pipeline-that-folds",
    "document/evaluate-served-experts-and-latent-attention",
    "document/evaluate-memory-exceeded",
    "document/launch-megatron-lm",
    "document/launch-read-vllm",
    "document/list-counts",
    "document/catalog-show-a100",
    "document/examples",
)


def names() -> list[str]:
    """Names of all records, ``KIND/NAME``."""
    return [f"{kind}/{name}" for kind, (known, _) in KINDS.items() for name in known()]


def chosen(patterns: list[str]) -> list[str]:
    """The names of these patterns, all names without any.

    Raises:
        SystemExit: nothing has one of these names.
    """
    known, chosen = names(), []
    for pattern in patterns or ["*"]:
        start, is_start = pattern.removesuffix("*"), pattern.endswith("*")
        hits = [
            name for name in known if (name.startswith(start) if is_start else pattern in (name, name.split("/")[1]))
        ]
        if not hits:
            raise SystemExit(f"no record has the name {pattern}; --list has all")
        chosen += hits
    return list(dict.fromkeys(chosen))


def taken(name: str) -> Any:
    """What dse says now, as it is written."""
    kind, _, short = name.partition("/")
    return json.loads(json.dumps(_rounded(KINDS[kind][1](short))))


def path(name: str) -> Path:
    """The file of a record."""
    return DATA / f"{name}.json.gz"


def recorded(name: str) -> Any:
    """What dse said when the record was written."""
    return json.loads(gzip.decompress(path(name).read_bytes()))


def write(name: str, document: Any) -> None:
    """Write a record; the same document makes the same bytes."""
    path(name).parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, separators=(",", ":"), sort_keys=False)
    path(name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def moved(name: str, tolerance: float = TOLERANCE) -> Iterator[Difference]:
    """What dse says otherwise than the record; numbers by more than the tolerance, relative."""
    if not path(name).exists():
        yield Difference(name, float("inf"), "no record: --write it")
        return
    try:
        now = taken(name)
    except Exception as fault:  # of one record: the others are compared all the same
        yield Difference(name, float("inf"), f"{type(fault).__name__}: {fault}")
        return
    yield from (one for one in differences(recorded(name), now) if one.size > tolerance)


def _rounded(document: Any) -> Any:
    """With twelve digits a number: a thousand times those that are compared."""
    if isinstance(document, dict):
        return {str(key): _rounded(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [_rounded(value) for value in document]
    return float(f"{document:.12g}") if isinstance(document, float) else document
