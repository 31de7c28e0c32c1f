"""SQLite files and packed files that would take hours or gigabytes to read, small and made here."""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from tests.unit.measured import profiles as files

KERNELS, _OWNER = "CUPTI_ACTIVITY_KIND_KERNEL", 4711 << 24

#: Name → statements that change an export of Nsight Systems.
_CHANGES = {
    "a text of gigabytes that is computed": (
        "ALTER TABLE StringIds RENAME COLUMN value TO stored;"
        "ALTER TABLE StringIds ADD COLUMN value AS (hex(zeroblob(300000000)));"
    ),
    "lengths of texts that are computed": (
        f"ALTER TABLE {KERNELS} RENAME COLUMN end TO stored;"
        f"ALTER TABLE {KERNELS} ADD COLUMN end AS (stored + length(hex(zeroblob(50000000))));"
    ),
    "a view without an end": (
        "ALTER TABLE StringIds RENAME TO Others; CREATE VIEW StringIds AS"
        " WITH RECURSIVE c(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM c) SELECT id, 'a' AS value FROM c;"
    ),
    "a virtual table": (
        "ALTER TABLE StringIds RENAME TO Others; CREATE VIRTUAL TABLE StringIds USING fts5(id, value);"
    ),
    "texts of 20 MB": "INSERT INTO StringIds SELECT 100, hex(zeroblob(10000000));",
}


def databases(folder: Path) -> Iterator[Path]:
    """Exports that must not be read to their end."""
    for number, (name, change) in enumerate(_CHANGES.items()):
        yield _changed(folder / f"{number} {name}.sqlite", change)
    repeated = "DROP TABLE StringIds; CREATE TABLE StringIds (id INTEGER, value TEXT);"
    many = "WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c LIMIT 20000)"
    yield _changed(
        folder / "ids of kernels repeated.sqlite",
        f"{repeated}{many} INSERT INTO StringIds SELECT 0, 'gemm' FROM c;"
        f"{many} INSERT INTO {KERNELS} SELECT i, i + 1, 0, 7, 1, {_OWNER}, 0, 0 FROM c;",
    )
    yield _changed(
        folder / "ids of ranges repeated.sqlite",
        f"{repeated}{many} INSERT INTO StringIds SELECT 7, 'step 1' FROM c;"
        f"{many} INSERT INTO NVTX_EVENTS SELECT i, i + 1, 59, NULL, {_OWNER}, 7 FROM c;",
    )
    yield _changed(
        folder / "sixty thousand tables.sqlite",
        "PRAGMA writable_schema = ON;"
        + many.replace("20000", "60000")
        + " INSERT INTO sqlite_master SELECT 'table', 't' || i, 't' || i, 2, 'CREATE TABLE t' || i || ' (a)' FROM c;",
    )
    yield _tree(folder / "pages that are children of all others.sqlite")


def _changed(path: Path, change: str) -> Path:
    files.nsight(path, change=change)
    return path


def _tree(path: Path, depth: int = 8, children: int = 300) -> Path:
    """A table whose pages have one page as each of their children: 300^8 times the rows of the last."""
    files.nsight(path)
    database = sqlite3.connect(path)
    (root,), (pages,), (size,) = (
        next(database.execute(query))
        for query in (
            f"SELECT rootpage FROM sqlite_master WHERE name = '{KERNELS}'",
            "PRAGMA page_count",
            "PRAGMA page_size",
        )
    )
    database.close()
    content = bytearray(path.read_bytes())
    place = slice((root - 1) * size, root * size)
    content += content[place]

    def interior(child: int) -> bytes:
        cells = [struct.pack(">I", child) + bytes([0x80 + (i >> 7), i & 0x7F]) for i in range(1, children + 1)]
        starts = [size - 6 * (i + 1) for i in range(children)]
        head = struct.pack(">BHHHBI", 5, 0, children, starts[-1], 0, child)
        pointers = b"".join(struct.pack(">H", start) for start in starts)
        return (head + pointers).ljust(starts[-1], b"\0") + b"".join(reversed(cells))

    for level in range(depth):
        content += interior(pages + 1 + level)
    content[place] = interior(pages + 1 + depth)
    content[28:32] = struct.pack(">I", len(content) // size)
    path.write_bytes(content)
    return path


def packed(folder: Path) -> Iterator[Path]:
    """Packed files of a few kB that are hundreds of MB long."""
    begin, block = b'{"schemaVersion": 1, "traceEvents": [', 1 << 20
    contents = {
        "spaces.json.gz": (begin, b" "), "events.json.gz": (begin, b"{},"), "lines.log.gz": (b"", b"\n"),
        "lists.json.gz": (b'{"model_id": [', b"0,"),
    }  # fmt: skip
    for name, (head, unit) in contents.items():
        (folder / name).write_bytes(_repeated(head, unit * block, 256 // len(unit)))
        yield folder / name


def _repeated(head: bytes, block: bytes, times: int) -> bytes:
    """``head`` and a block so many times, as gzip packs it; the block is packed once."""
    packing = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    first, repeated = (packing.compress(part) + packing.flush(zlib.Z_FULL_FLUSH) for part in (head, block))
    check = zlib.crc32(head)
    for _ in range(times):
        check = zlib.crc32(block, check)
    ends = b"\x1f\x8b\x08" + bytes(6) + b"\xff", struct.pack("<II", check, len(head) + times * len(block))
    return ends[0] + first + times * repeated + packing.flush() + ends[1]
