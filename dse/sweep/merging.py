"""Joins the parts of the shards of a sweep to the file that a single run would write."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from dse.doors import Study
from dse.errors import InputError
from dse.io import outputs, reporting
from dse.spec.output import Keep
from dse.spec.sweep import from_text
from dse.sweep.evaluation import write_results
from dse.sweep.grid.grid import Grid
from dse.sweep.job import plan
from dse.sweep.reduce.collection import Collection
from dse.sweep.reduce.keep import BlockResult
from dse.sweep.results import dataset as datasets, summary as summaries
from dse.sweep.results.labelled import Labelled
from dse.sweep.results.summary import Summary
from dse.sweep.store import manifest as manifests
from dse.sweep.store.parts import PartStore, lock_output, parts_folder, stored_ranges

#: Attributes that must be equal here and where the parts were computed; others are taken from the shards.
_IDENTITY_ATTRIBUTES = ("specification_hash", "catalog_digest", "code_version", "code_digest")


def merge(
    output: str | Path, study: Study | None = None, force: bool = False, judge: datasets.Judge | None = None
) -> tuple[Labelled, Summary]:
    """Join the parts of all shards and write the results that a single run would write.

    Args:
        output: the shards' output file; their parts are in ``<output>.parts/``.
        study: the model that the shards evaluated, if it is not the one that the specification implies.
        force: replace a file that is not of dse.
        judge: further variables of the designs that ``top:K`` keeps.

    Returns:
        The labelled results and their summary; the parts are deleted.

    Raises:
        InputError: for missing parts, and for parts of different sweeps, versions or catalogues.

    >>> import tempfile
    >>> from dse.sweep import Shard, perform_shard
    >>> output = f"{tempfile.mkdtemp()}/all.nc"
    >>> for number in (1, 2):
    ...     _ = perform_shard("sweeps/megatron_1t_4096_a100.toml", Shard(number, 2), output, keep="top:3")
    >>> merge(output)[1].n_designs
    34716
    """
    start = time.perf_counter()
    output = Path(output)
    outputs.check_output(output, force)
    key, header = _key_and_header(output)
    grid, keep = _grid_and_keep(output, header, study)
    store = PartStore(output, key)
    hint = f"; every part is still in {store.folder}: the same command joins them"
    with outputs.disk_errors(output), lock_output(output), reporting(lambda: hint):
        part = join_parts(store, grid, keep)
        joined_at = time.perf_counter()
        numbers = {"seconds": {}, "n_programs": 0, "resumed": grid.n_designs, "redone": 0, "output": output}
        summary = summaries.of_part(grid, keep, part, **numbers)
        attributes = summaries.attributes(grid, summary, header["sweep"])
        labelled = datasets.build(grid, keep, part, attributes, judge)
        write_results(labelled, grid, store, {"run": joined_at - start}, force)
    summary.seconds.update(
        run=joined_at - start, write=time.perf_counter() - joined_at, total=time.perf_counter() - start
    )
    return labelled, summary


def join_parts(store: PartStore, grid: Grid, keep: Keep) -> BlockResult:
    """Return the joined part of a sweep, read from the store; InputError where parts are missing or damaged."""
    collection = Collection(grid, keep)
    for block in _complete_blocks(store, stored_ranges(store.folder).get(store.key, []), grid.n_outer):
        part = store.load(block)
        if part is None:
            raise _incomplete(store, block, "a damaged part")
        collection.add(part)
    return collection.result()


def _key_and_header(output: Path) -> tuple[str, dict[str, Any]]:
    """Return the key and header of the only sweep with parts next to the output; InputError for none or several."""
    folder = parts_folder(output)
    ranges_by_key = stored_ranges(folder)
    headers = {path.name[:16]: line for path in sorted(folder.glob("*.jsonl")) for line in _headers(path)}
    if not ranges_by_key:
        raise InputError(
            f"output {output}",
            f"no parts in {folder}",
            "the results file of shards: dse merge FILE.nc",
            f"run dse run SWEEP.toml --shard i/n -o {output.with_suffix('.nc')} for every i first",
        )
    if len(ranges_by_key) > 1:
        raise InputError(
            f"output {output}",
            f"parts of {len(ranges_by_key)} different sweeps{_difference(ranges_by_key, headers)}",
            "shards of one specification, --keep, --chunk, code, catalogue and device",
            f"run the shards again with --fresh, or remove the old parts from {folder}",
        )
    (key,) = ranges_by_key
    if key not in headers:
        raise InputError(
            f"output {output}",
            "parts without their manifest (*.jsonl)",
            "the whole folder of parts",
            f"copy the manifests into {folder} too",
        )
    return key, headers[key]


def _headers(path: Path) -> list[dict[str, Any]]:
    """Return the valid headers in a manifest, as decoded from JSON: one per process that wrote it."""
    return [line for line in manifests.lines(path) if _is_header(line)]


def _is_header(line: dict[str, Any]) -> bool:
    """Return True if a line is a valid header of a sweep; a manifest may be of another program."""
    sweep, shard, blocks = line.get("sweep"), line.get("shard"), line.get("blocks")
    texts = [line.get("specification"), line.get("file"), *(sweep.values() if isinstance(sweep, dict) else [None])]
    has_identity = isinstance(sweep, dict) and {"keep", "any_option", *_IDENTITY_ATTRIBUTES} <= set(sweep)
    has_range = isinstance(blocks, list) and len(blocks) in (0, 2) and all(type(index) is int for index in blocks)
    has_shard = isinstance(shard, str) and re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", shard)
    return bool(has_identity and has_range and has_shard) and all(isinstance(text, str) for text in texts)


def _difference(keys: Any, headers: dict[str, dict[str, Any]]) -> str:
    """Return the text on the attributes in which the sweeps of these keys differ; empty with fewer than two headers."""
    identities = [headers[key]["sweep"] for key in keys if key in headers]
    if len(identities) < 2:
        return ""
    names = [name for name in identities[0] if len({json.dumps(identity.get(name)) for identity in identities}) > 1]
    return f", which differ in {', '.join(names) or 'their chunk'}"


def _grid_and_keep(output: Path, header: dict[str, Any], study: Study | None) -> tuple[Grid, Keep]:
    """Return the grid as composed here and what is kept; InputError if either differs from that of the shards."""
    spec = from_text(header["specification"], header["file"], study)
    grid, keep = plan(spec, header["sweep"]["keep"], any_option=header["sweep"]["any_option"] == "yes")
    identity = manifests.identity(grid, keep)
    if differ := identity_differences(identity, header["sweep"]):
        raise InputError(
            f"output {output}",
            f"parts made with another {', '.join(differ)}",
            "the same code and catalogue",
            "merge where the shards ran, or run them again here with --fresh",
        )
    return grid, keep


def identity_differences(local: dict[str, str], remote: dict[str, str]) -> list[str]:
    """Return the names of the attributes that must be equal here and where parts were computed, but differ."""
    return [name for name in _IDENTITY_ATTRIBUTES if local[name] != remote[name]]


def _complete_blocks(store: PartStore, blocks: list[range], n_outer: int) -> list[range]:
    """Return blocks, ascending, that contain every index below ``n_outer`` once; InputError where none do.

    Other divisions of the same sweep may have left more blocks.
    """
    block_by_start = {
        n_outer: range(n_outer, n_outer)
    }  # index from which the rest is complete → the block that begins there
    for block in sorted(blocks, key=lambda candidate: -candidate.start):
        if block.stop in block_by_start:
            block_by_start[block.start] = block
    if 0 not in block_by_start:
        raise _incomplete(store, _gap(blocks, n_outer), "nothing")
    chain = [block_by_start[0]]
    while chain[-1].stop < n_outer:
        chain.append(block_by_start[chain[-1].stop])
    return chain


def _gap(blocks: list[range], n_outer: int) -> range:
    """Return the first indices that no block contains; all indices where blocks of several divisions cover them."""
    reached = 0
    for block in blocks:
        if block.start > reached:
            return range(reached, block.start)
        reached = max(reached, block.stop)
    return range(reached if reached < n_outer else 0, n_outer)


def _incomplete(store: PartStore, block: range, got: str) -> InputError:
    """Return the error for missing parts, with the shards that should have written them."""
    missing = _missing_shards(store, block)
    return InputError(
        f"output {store.output}",
        f"{got} for the outer indices {block.start:,} to {block.stop - 1:,}{missing}",
        "each index exactly once",
        "run the missing shard again (dse run … --shard i/n), then merge",
    )


def _missing_shards(store: PartStore, block: range) -> str:
    """Return the text on shards that have not run or are incomplete in ``block``, by their manifests; may be empty."""
    range_by_shard = {
        tuple(map(int, line["shard"].split("/"))): line["blocks"]
        for path in sorted(store.folder.glob(f"{store.key}-*.jsonl"))
        for line in _headers(path)
    }
    notes = []
    for n_shards in sorted({n_shards for _, n_shards in range_by_shard if n_shards > 1}):
        absent = [f"{i}/{n_shards}" for i in range(1, n_shards + 1) if (i, n_shards) not in range_by_shard]
        broken = [
            f"{i}/{n}"
            for (i, n), indices in sorted(range_by_shard.items())
            if n == n_shards and indices and indices[0] < block.stop and block.start < indices[1]
        ]
        notes += [f"have not run: {_abbreviated(absent)}"] if absent else []
        notes += [f"are incomplete: {_abbreviated(broken)}"] if broken else []
    return f"; shards that {'; '.join(notes)}" if notes else ""


def _abbreviated(names: list[str]) -> str:
    """Return the names as text, the first 20 of many with the number of all."""
    return ", ".join(names[:20]) + (f" … ({len(names):,} in all)" if len(names) > 20 else "")
