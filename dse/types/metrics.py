"""Metrics of training and serving: declared as totals and parts in ``metrics.toml``, read flat."""

from __future__ import annotations

import dataclasses
import functools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

from dse.types.display import record_html, record_text
from dse.types.fields import Bounds, Scalar, number, record

#: Groups of metrics that results may lack: sweeps write energy by default, of the others what they ask for.
ENERGY, MONEY, CARBON, RUN, TAILS = "energy", "money", "carbon", "run", "tails"
GROUPS = (ENERGY, MONEY, CARBON, RUN, TAILS)

#: Keys of a row that are metadata of a metric and of its parts, and of the metric alone.
_COMMON, _SINGLE = ("units", "group", "without_step"), ("symbol", "counts", "smooth")

T = TypeVar("T")


@functools.cache
def _rows() -> dict[str, dict[str, Any]]:
    """Return metric → its row of ``metrics.toml``."""
    return tomllib.loads(Path(__file__).with_name("metrics.toml").read_text(encoding="utf-8"))


def _declared(door: str) -> Iterator[tuple[str, Any]]:
    """Yield (name, dataclass field) of the metrics of a door in the order of its results, parts after their total."""
    rows = _rows()
    order = list(rows)
    for name, row in rows.items():
        if previous := row.get(f"{door}_after"):
            order.remove(name)
            order.insert(order.index(previous) + 1, name)
    for name in order:
        row = rows[name]
        if text := row.get("text", row.get(door)):
            common = {key: row[key] for key in _COMMON if key in row}
            single = {key: row[key] for key in _SINGLE if key in row}
            yield name, number(text, **common, **single, bounds=Bounds(high=row.get("high", math.inf)))
            parts = row.get("parts", row.get(f"{door}_parts", {}))
            for part, part_text in (rows[parts]["parts"] if isinstance(parts, str) else parts).items():
                yield f"{name}_{part}", number(part_text, **common, total=name, part=part)


def _metrics_of(door: str) -> Callable[[type[T]], type[T]]:
    """Return a decorator that makes a class the record of the metrics of a door."""

    def with_fields(cls: type[T]) -> type[T]:
        for name, field in _declared(door):
            setattr(cls, name, field)
            cls.__annotations__[name] = Scalar
        return record(cls)

    return with_fields


class FlatMetrics:
    """Metrics as attributes; parts of a total are ``<total>_<part>`` and add up to it."""

    _repr_html_, __repr__ = record_html, record_text

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, Any]]

        def __init__(self, **values: Scalar) -> None: ...

        def __getattr__(self, name: str) -> Scalar: ...

    @classmethod
    def of_totals(cls, **values: Scalar | tuple[Scalar, Any]) -> Self:
        """Return the metrics of a design.

        Args:
            **values: metric → value; of a total with parts (value, parts), these a named tuple or a mapping.

        Raises:
            TypeError: for a metric or part that is not declared, and for one without a value.
        """
        flat: dict[str, Scalar] = {}
        for name, value in values.items():
            total, parts = value if isinstance(value, tuple) else (value, {})
            flat[name] = total
            by_part: Mapping[str, Scalar] = parts if isinstance(parts, Mapping) else parts._asdict()
            flat |= {f"{name}_{part}": amount for part, amount in by_part.items()}
        return cls(**flat)

    def parts(self, total: str) -> dict[str, Scalar]:
        """Return part → value of the parts of a total, empty for another metric."""
        return {part: getattr(self, name) for name, part in parts_of(type(self), total).items()}


def parts_of(cls: type, total: str) -> dict[str, str]:
    """Return metric → name of the part, of the parts of a total in a record of metrics; empty for another metric.

    Args:
        cls: a record class whose parts have the metadata ``total`` and ``part``.
        total: a metric of it.
    """
    return {
        field.name: field.metadata["part"] for field in dataclasses.fields(cls) if field.metadata.get("total") == total
    }


@_metrics_of("training")
class Metrics(FlatMetrics):
    """Metrics of one design; parts ``<metric>_<part>`` add up to ``<metric>``."""


@_metrics_of("serving")
class ServingMetrics(FlatMetrics):
    """Metrics of serving; every total is the sum of its parts ``<total>_<part>``."""
