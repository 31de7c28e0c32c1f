"""Messages of Protocol Buffers as bytes: what traces need of the encoding, without its library.

Fields by number; a message of a stream stands after its length (https://protobuf.dev/programming-guides/encoding).
"""

from __future__ import annotations

from collections.abc import Iterable

_VARINT, _LENGTH = 0, 2


def varint(value: int) -> bytes:
    """A nonnegative integer in groups of seven bits, the lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def integer(field: int, value: int) -> bytes:
    """A field of an integer, a bool or an enumeration; of a negative one its two's complement in 64 bits."""
    return varint(field << 3 | _VARINT) + varint(value & 0xFFFFFFFFFFFFFFFF)


def sized(field: int, content: bytes | str) -> bytes:
    """A field of bytes, of text, or of a message."""
    data = content.encode() if isinstance(content, str) else content
    return varint(field << 3 | _LENGTH) + varint(len(data)) + data


def packed(field: int, values: Iterable[int]) -> bytes:
    """A repeated field of integers; nothing for none."""
    data = b"".join(map(varint, values))
    return sized(field, data) if data else b""
