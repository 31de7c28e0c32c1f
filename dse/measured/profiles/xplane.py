"""Profiles as JAX and TensorFlow keep them themselves: ``*.xplane.pb``, a protocol buffer of planes, lines and events.

Source of the fields: tsl/profiler/protobuf/xplane.proto. A plane is a process or device, a line a thread or stream;
events are given as those of a Chrome trace are, so that one reader has both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.measured.profiles.run import ALLOWED, read_blocks

#: Begin of a file: a plane by its number and name.
SIGNATURE = re.compile(
    rb"\A\n[\x80-\xff]{0,4}[\x00-\x7f](?:\x08[\x80-\xff]{0,9}[\x00-\x7f])?\x12.(?:/host:|/device:|Task )", re.DOTALL
)

#: Bytes of a file; attributes of events that are read.
_LIMIT, _ATTRIBUTES = 2 << 30, frozenset(("step_num", "hlo_op", "hlo_category", "device_ordinal", "correlation_id"))

#: Numbers of fields.
_SPACE_PLANES = 1
_PLANE_NAME, _PLANE_LINES, _PLANE_EVENT_NAMES, _PLANE_STAT_NAMES = 2, 3, 4, 5
_LINE_NAME, _LINE_TIMESTAMP, _LINE_EVENTS, _LINE_DISPLAY_NAME = 2, 3, 4, 11
_EVENT_KIND, _EVENT_OFFSET, _EVENT_DURATION, _EVENT_STATS = 1, 2, 3, 4
_KIND_NAME, _KIND_DISPLAY_NAME, _KIND_STATS = 2, 4, 5
_STAT_KIND, _STAT_TEXT, _STAT_REFERENCE = 1, 5, 7
_ENTRY_KEY, _ENTRY_VALUE = 1, 2

#: Value of a field: a number, or bytes of a text or of an inner message.
_Value = int | bytes


def events(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of a file as those of a Chrome trace: names of processes and threads first, times in µs.

    Args:
        path: of the file, gzipped or not.

    Raises:
        InputError: for a damaged file.
    """
    content = b"".join(read_blocks(path, _LIMIT, 4 << 20))
    try:
        planes = [_Plane(pid, value) for pid, value in enumerate(_inner(content, _SPACE_PLANES))]
        for plane in planes:
            yield from plane.names()
        for plane in planes:
            yield from plane.spans()
    except (IndexError, ValueError):
        raise InputError(str(path), "a profile that is damaged or cut", ALLOWED, "copy the file again") from None


class _Plane:
    """A process or a device."""

    def __init__(self, pid: int, content: bytes) -> None:
        self.pid = pid
        self.name = ""
        self.lines: list[bytes] = []
        self.kinds: dict[int, bytes] = {}
        self.stats: dict[int, str] = {}
        for field, value in _fields(content):
            if not isinstance(value, bytes):
                continue
            if field == _PLANE_NAME:
                self.name = _text(value)
            elif field == _PLANE_LINES:
                self.lines.append(value)
            elif field in (_PLANE_EVENT_NAMES, _PLANE_STAT_NAMES):
                entry = dict(_fields(value))
                key, inner = entry.get(_ENTRY_KEY, 0), entry.get(_ENTRY_VALUE, b"")
                if isinstance(key, int) and isinstance(inner, bytes):
                    if field == _PLANE_EVENT_NAMES:
                        self.kinds[key] = inner
                    else:
                        self.stats[key] = _text(dict(_fields(inner)).get(_KIND_NAME, b""))
        self._known: dict[int, tuple[str, dict[str, Any]]] = {}

    def names(self) -> Iterator[dict[str, Any]]:
        """Yield the names of the plane and of its lines."""
        yield {"ph": "M", "pid": self.pid, "name": "process_name", "args": {"name": self.name}}
        for tid, line in enumerate(self.lines):
            named = {field: value for field, value in _fields(line) if field in (_LINE_NAME, _LINE_DISPLAY_NAME)}
            name = _text(named.get(_LINE_NAME) or named.get(_LINE_DISPLAY_NAME) or b"")
            yield {"ph": "M", "pid": self.pid, "tid": tid, "name": "thread_name", "args": {"name": name}}

    def spans(self) -> Iterator[dict[str, Any]]:
        """Yield the events of all lines."""
        for tid, line in enumerate(self.lines):
            start_us = 1e-3 * next((value for field, value in _fields(line) if field == _LINE_TIMESTAMP), 0)  # type: ignore[operator]
            for event in _inner(line, _LINE_EVENTS):
                yield {"ph": "X", "pid": self.pid, "tid": tid, **self._span(event, start_us)}

    def _span(self, event: bytes, start_us: float) -> dict[str, Any]:
        """Return name, start and duration in µs, and attributes of an event."""
        values: dict[int, int] = {}
        attributes: dict[str, Any] = {}
        for field, value in _fields(event):
            if isinstance(value, int):
                values[field] = value
            elif field == _EVENT_STATS:
                attributes |= self._attribute(value)
        name, common = self._kind(values.get(_EVENT_KIND, 0))
        times = (1e-6 * values.get(field, 0) for field in (_EVENT_OFFSET, _EVENT_DURATION))
        offset_us, duration_us = times
        return {"name": name, "ts": start_us + offset_us, "dur": duration_us, "args": common | attributes}

    def _kind(self, number: int) -> tuple[str, dict[str, Any]]:
        """Return the name of a kind of events, the short one if it has one, and what its events have in common."""
        if number not in self._known:
            names, attributes = dict[int, bytes](), dict[str, Any]()
            for field, value in _fields(self.kinds.get(number, b"")):
                if isinstance(value, bytes) and field == _KIND_STATS:
                    attributes |= self._attribute(value)
                elif isinstance(value, bytes):
                    names[field] = value
            name = names.get(_KIND_DISPLAY_NAME) or names.get(_KIND_NAME, b"").removeprefix(b"%").partition(b" = ")[0]
            self._known[number] = _text(name), attributes
        return self._known[number]

    def _attribute(self, stat: bytes) -> dict[str, Any]:
        """Return an attribute as name → value, {} for one that is not read."""
        values = dict(_fields(stat))
        name = self.stats.get(values.pop(_STAT_KIND, 0), "")  # type: ignore[arg-type]
        if name not in _ATTRIBUTES or not values:
            return {}
        field, value = values.popitem()
        if field == _STAT_REFERENCE:
            return {name: self.stats.get(value, "")}  # type: ignore[arg-type]
        return {name: _text(value) if field == _STAT_TEXT else value}


def _text(value: _Value) -> str:
    """Return a text field, at most a thousand characters of it; "" for a number."""
    return value[:1000].decode("utf-8", "replace") if isinstance(value, bytes) else ""


def _inner(content: bytes, number: int) -> Iterator[bytes]:
    """Yield the inner messages of a field."""
    return (value for field, value in _fields(content) if field == number and isinstance(value, bytes))


def _fields(content: bytes) -> Iterator[tuple[int, _Value]]:
    """Yield (number, value) of the fields of a message; ValueError, or IndexError for a damaged one."""
    position, end = 0, len(content)
    while position < end:
        key, position = _varint(content, position)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, position = _varint(content, position)
            yield number, value
        elif wire == 2:
            length, position = _varint(content, position)
            if position + length > end:
                raise ValueError(length)
            yield number, content[position : position + length]
            position += length
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            if position + width > end:
                raise ValueError(width)
            yield number, 0  # real numbers, which no attribute that is read has
            position += width
        else:
            raise ValueError(wire)


def _varint(content: bytes, position: int) -> tuple[int, int]:
    """Return an integer of seven bits a byte, and the position after it."""
    byte = content[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = content[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + 1
        shift += 7
        if shift > 63:
            raise ValueError(shift)
