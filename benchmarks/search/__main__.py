"""``python -m benchmarks.search docs/search.json``: enumerate, measure, keep the record that the page is made from.

``--exact`` enumerates alone and refreshes ``optima.json``; ``--foresight`` measures alone how often the relaxed
gradient predicts the sign of a change, ``--large`` the spaces that cannot be listed; ``--tiny`` measures a little on
the two smallest spaces. ``--spaces`` and ``--methods`` measure those anew and keep the rest of the record.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.search.measure import Effort


def main() -> None:
    """Do what the arguments say."""
    from dse.io import fuse_outputs

    fuse_outputs()
    asked = _arguments()
    _measure(asked, asked.record)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search", description=__doc__)
    parser.add_argument("record", type=Path, nargs="?", default=Path("docs/search.json"))
    for name in ("exact", "foresight", "large", "tiny"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--spaces", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--evaluations", type=int)
    return parser.parse_args()


def _measure(asked: argparse.Namespace, record: Path) -> None:
    """What the arguments ask for; the record is written after each part."""
    import dataclasses

    from benchmarks.search import exact, foresight, large, measure, suite

    given = {key: value for key in ("seeds", "evaluations") if (value := getattr(asked, key))}
    effort = dataclasses.replace(measure.TINY if asked.tiny else measure.Effort(), **given)
    alone = [part for part in ("foresight", "large") if getattr(asked, part)]
    whole = not (alone or asked.spaces or asked.methods or asked.tiny or asked.exact)
    document: dict[str, Any] = {} if whole or not record.exists() else json.loads(record.read_text(encoding="utf-8"))
    names = tuple(asked.spaces) or suite.names()[: 2 if asked.tiny else None]

    def keep() -> None:
        record.write_text(json.dumps(document, allow_nan=False) + "\n", encoding="utf-8")

    if not alone:
        document |= _circumstances() | {"effort": dataclasses.asdict(effort)}
        _measure_spaces(asked, names, effort, document, keep)
    if whole or "foresight" in alone:
        for name in names:
            if not exact.stored()[name].front:
                document["spaces"][name]["foresight"] = foresight.measured(name)
                keep()
    if whole or "large" in alone:
        document["large"] = large.measured(effort)
        keep()


def _measure_spaces(
    asked: argparse.Namespace,
    names: tuple[str, ...],
    effort: Effort,
    document: dict[str, Any],
    keep: Callable[[], None],
) -> None:
    """Enumerate all spaces, then measure one by one."""
    from benchmarks.search import exact, fronts, measure, suite

    seconds, optima = {}, exact.stored() if exact.FILE.exists() else {}
    for name in names:
        optima[name], seconds[name] = exact.enumerated(name)
        exact.store({known: optima[known] for known in suite.names() if known in optima})
    for name in () if asked.exact else names:
        entry = document.setdefault("spaces", {}).setdefault(name, {"methods": {}})
        entry |= {"seconds": seconds[name]}
        entry["methods"] |= measure.measured(name, optima[name], effort, tuple(asked.methods))
        if optima[name].front and not asked.tiny:
            entry["pymoo"] = fronts.beside_pymoo(name, optima[name])
        keep()


def _circumstances() -> dict[str, Any]:
    """When and on what was measured."""
    import os
    import platform

    import jax

    return {
        "date": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "jax": jax.__version__,
    }


if __name__ == "__main__":
    main()
