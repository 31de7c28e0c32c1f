"""Things that belong to objects without a hash, as long as these live: the report of a dataset."""

from __future__ import annotations

import weakref
from typing import Any

#: Identity of an object → what belongs to it.
_ATTACHMENTS: dict[int, Any] = {}


def attach(thing: Any, attachment: Any) -> None:
    """Keep what belongs to an object until the object is gone.

    Args:
        thing: any object that can be referred to weakly.
        attachment: what belongs to it.
    """
    _ATTACHMENTS[id(thing)] = attachment
    weakref.finalize(thing, _ATTACHMENTS.pop, id(thing), None)


def attachment(thing: Any) -> Any:
    """Return what belongs to an object, None for nothing.

    Args:
        thing: the object itself, no copy of it.
    """
    return _ATTACHMENTS.get(id(thing))
