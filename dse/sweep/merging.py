"""Joins the parts of the shards of a sweep to the file that a single run would write."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from dse.doors.study import Study
from dse.errors import InputError
from dse.io import outputs
from dse.io.interruption import telling
from dse.spec.output import Keep
from dse.spec.sweep import from_text
from dse.sweep.evaluation import write_results
from dse.sweep.grid.grid import Grid
from dse.sweep.job import plan
from dse.sweep.reduce.collection import Collection
from dse.sweep.reduce.keep import Part
from dse.sweep.results import dataset as datasets
from dse.sweep.results import summary as summaries
from dse.sweep.results.files import Labelled
from dse.sweep.results.summary import Summary
from dse.sweep.store import manifest as manifests
from dse.sweep.store.parts import PartStore, lock_output, parts_folder, ranges

#: Attributes that must be equal here and where the parts were computed; others are taken from the shards.
_SAME_HERE = ("specification_hash", "catalog_digest", "code_version", "code_digest")


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
    began = time.perf_counter()
    output = Path(output)
    outputs.checked(output, force)
    key, header = _the_sweep(output)
    grid, keep = _same_sweep(output, header, study)
    store = PartStore(output, key)
    kept = f"; every part is still in {store.folder}: the same command joins them"
    with outputs.disk_errors(output), lock_output(output), telling(lambda: kept):
        part = joined_parts(store, grid, keep)
        joined = time.perf_counter()
        numbers = {"seconds": {}, "n_programs": 0, "resumed": grid.n_designs, "redone": 0, "output": output}
        summary = summaries.of_part(grid, keep, part, **numbers)
        attributes = summaries.attributes(grid, summary, header["sweep"])
        labelled = datasets.build(grid, keep, part, attributes, judge)
        write_results(labelled, grid, store, {"run": joined - began}, force)
    summary.seconds.update(run=joined - began, write=time.perf_counter() - joined, total=time.perf_counter() - began)
    return labelled, summary


def joined_parts(store: PartStore, grid: Grid, keep: Keep) -> Part:
    """The joined part of a sweep whose parts are complete."""
    found = Collection(grid, keep)
    for block in _whole(store, ranges(store.folder).get(store.key, []), grid.n_outer):
        part = store.load(block)
        if part is None:
            raise _incomplete(store, block, "a damaged part")
        found.add(part)
    return found.result()


def _the_sweep(output: Path) -> tuple[str, dict[str, Any]]:
    """Key and header of the only sweep with parts next to the output."""
    folder = parts_folder(output)
    found = ranges(folder)
    headers = {path.name[:16]: line for path in sorted(folder.glob("*.jsonl")) for line in _headers(path)}
    if not found:
        raise InputError(
            f"output {output}",
            f"no parts in {folder}",
            "the results file of shards: dse merge FILE.nc",
            f"run dse run SWEEP.toml --shard i/n -o {output.with_suffix('.nc')} for every i first",
        )
    if len(found) > 1:
        raise InputError(
            f"output {output}",
            f"parts of {len(found)} different sweeps{_difference(found, headers)}",
            "shards of one specification, --keep, --chunk, code, catalogue and device",
            f"run the shards again with --fresh, or remove the old parts from {folder}",
        )
    (key,) = found
    if key not in headers:
        raise InputError(
            f"output {output}",
            "parts without their manifest (*.jsonl)",
            "the whole folder of parts",
            f"copy the manifests into {folder} too",
        )
    return key, headers[key]


def _headers(path: Path) -> list[dict[str, Any]]:
    """Headers of a manifest: one line per process that wrote it."""
    return [line for line in manifests.lines(path) if _is_header(line)]


def _is_header(line: dict[str, Any]) -> bool:
    """Whether a line is a valid header of a sweep; a manifest may be of another program."""
    sweep, shard, blocks = line.get("sweep"), line.get("shard"), line.get("blocks")
    texts = [line.get("specification"), line.get("file"), *(sweep.values() if isinstance(sweep, dict) else [None])]
    known = isinstance(sweep, dict) and {"keep", "any_option", *_SAME_HERE} <= set(sweep)
    whole = isinstance(blocks, list) and len(blocks) in (0, 2) and all(type(one) is int for one in blocks)
    shares = isinstance(shard, str) and re.fullmatch(r"[0-9]{1,9}/[0-9]{1,9}", shard)
    return bool(known and whole and shares) and all(isinstance(text, str) for text in texts)


def _difference(keys: Any, headers: dict[str, dict[str, Any]]) -> str:
    """Differences between the sweeps of these keys, by their headers."""
    known = [headers[key]["sweep"] for key in keys if key in headers]
    if len(known) < 2:
        return ""
    names = [name for name in known[0] if len({json.dumps(one.get(name)) for one in known}) > 1]
    return f", which differ in {', '.join(names) or 'their chunk'}"


def _same_sweep(output: Path, header: dict[str, Any], study: Study | None) -> tuple[Grid, Keep]:
    """The grid of the sweep as composed here; InputError if it differs from that of the shards."""
    spec = from_text(header["specification"], header["file"], study)
    grid, keep = plan(spec, header["sweep"]["keep"], any_option=header["sweep"]["any_option"] == "yes")
    here = manifests.identity(grid, keep)
    if differ := different(here, header["sweep"]):
        raise InputError(
            f"output {output}",
            f"parts made with another {', '.join(differ)}",
            "the same code and catalogue",
            "merge where the shards ran, or run them again here with --fresh",
        )
    return grid, keep


def different(here: dict[str, str], there: dict[str, str]) -> list[str]:
    """Attributes that must be equal here and where the parts were computed, but differ."""
    return [name for name in _SAME_HERE if here[name] != there[name]]


def _whole(store: PartStore, blocks: list[range], n_outer: int) -> list[range]:
    """Blocks that contain every index exactly once; other divisions of the same sweep may have left more."""
    onward = {n_outer: range(n_outer, n_outer)}  # index from which the rest is complete → the block that begins there
    for block in sorted(blocks, key=lambda one: -one.start):
        if block.stop in onward:
            onward[block.start] = block
    if 0 not in onward:
        raise _incomplete(store, _gap(blocks, n_outer), "nothing")
    found = [onward[0]]
    while found[-1].stop < n_outer:
        found.append(onward[found[-1].stop])
    return found


def _gap(blocks: list[range], n_outer: int) -> range:
    """The first indices that no block contains, or the gap between two divisions."""
    reached = 0
    for block in blocks:
        if block.start > reached:
            return range(reached, block.start)
        reached = max(reached, block.stop)
    return range(reached if reached < n_outer else 0, n_outer)


def _incomplete(store: PartStore, block: range, got: str) -> InputError:
    """The error for missing parts, with the shards that should have written them."""
    missing = _missing_shards(store, block)
    return InputError(
        f"output {store.output}",
        f"{got} for the outer indices {block.start:,} to {block.stop - 1:,}{missing}",
        "each index exactly once",
        "run the missing shard again (dse run … --shard i/n), then merge",
    )


def _missing_shards(store: PartStore, block: range) -> str:
    """Shards that have not run or not finished, by their manifests."""
    begun = {
        tuple(map(int, line["shard"].split("/"))): line["blocks"]
        for path in sorted(store.folder.glob(f"{store.key}-*.jsonl"))
        for line in _headers(path)
    }
    notes = []
    for of in sorted({of for _, of in begun if of > 1}):
        absent = [f"{i}/{of}" for i in range(1, of + 1) if (i, of) not in begun]
        broken = [
            f"{i}/{n}"
            for (i, n), had in sorted(begun.items())
            if n == of and had and had[0] < block.stop and block.start < had[1]
        ]
        notes += [f"have not run: {_some(absent)}"] if absent else []
        notes += [f"are incomplete: {_some(broken)}"] if broken else []
    return f"; shards that {'; '.join(notes)}" if notes else ""


def _some(names: list[str]) -> str:
    """The first of many names, and their number."""
    return ", ".join(names[:20]) + (f" … ({len(names):,} in all)" if len(names) > 20 else "")
