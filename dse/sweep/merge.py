"""Join the parts that the shards of a sweep have left to the file that one run would have written."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from dse.errors import InputError
from dse.interruption import telling
from dse.spec.sweep import Keep, from_text
from dse.study import Study
from dse.sweep.evaluation import output_errors, write_results
from dse.sweep.grid.grid import Grid
from dse.sweep.job import plan
from dse.sweep.reduce.collection import Collection
from dse.sweep.results import dataset as datasets
from dse.sweep.results import summary as summaries
from dse.sweep.results.files import Labelled
from dse.sweep.results.summary import Summary
from dse.sweep.store import manifest as manifests
from dse.sweep.store.parts import PartStore, opened, parts_folder, ranges

#: What must be the same where parts are joined as where they were computed; the rest is taken from the shards.
_SAME_HERE = ("specification_hash", "catalog_digest", "code_version", "code_digest")


def merge(output: str | Path, study: Study | None = None) -> tuple[Labelled, Summary]:
    """Write the results that one run would have written from the parts that its shards have left.

    Args:
        output: the file that the shards were given; their parts lie beside it in ``<output>.parts/``.
        study: what the shards were told to evaluate, if it was not what the specification asks for.

    Returns:
        The labelled results and their summary; the parts are gone.

    Raises InputError when parts are missing or not all of one sweep, code and catalogue.
    """
    began = time.perf_counter()
    output = Path(output)
    key, header = _the_sweep(output)
    grid, keep = _same_sweep(output, header, study)
    store = PartStore(output, key)
    kept = f"; every part is still in {store.folder}: the same command joins them"
    with output_errors(output), opened(output), telling(lambda: kept):
        blocks = _whole(output, ranges(store.folder)[key], grid.n_outer)
        found = Collection(grid, keep)
        for block in blocks:
            part = store.load(block)
            if part is None:
                raise _incomplete(output, block, "a part that cannot be read")
            found.add(part)
        part = found.result()
        joined = time.perf_counter()
        numbers = {"seconds": {}, "n_programs": 0, "resumed": grid.n_designs, "output": output}
        summary = summaries.of_part(grid, keep, part, **numbers)
        attributes = summaries.attributes(grid, summary, header["sweep"], joined - began)
        labelled = datasets.build(grid, keep, part, attributes)
        write_results(labelled, grid, store)
    summary.seconds.update(run=joined - began, write=time.perf_counter() - joined, total=time.perf_counter() - began)
    return labelled, summary


def _the_sweep(output: Path) -> tuple[str, dict[str, Any]]:
    """Key and first line of the one sweep whose parts are beside the output."""
    folder = parts_folder(output)
    found = ranges(folder)
    headers = {path.name[:16]: line for path in sorted(folder.glob("*.jsonl")) for line in _headers(path)}
    if not found:
        raise InputError(
            f"output {output}", f"no parts in {folder}", "the parts of its shards", "run dse run … --shard i/n first"
        )
    if len(found) > 1:
        raise InputError(
            f"output {output}", f"parts of {len(found)} different sweeps{_difference(found, headers)}",
            "shards of one specification, --keep, --chunk, code, catalogue and device",
            f"run the shards again with --fresh, or remove what is old from {folder}",
        )  # fmt: skip
    (key,) = found
    if key not in headers:
        raise InputError(
            f"output {output}", "parts without their manifest (*.jsonl)", "the whole folder of parts",
            f"copy the manifests into {folder} too",
        )  # fmt: skip
    return key, headers[key]


def _headers(path: Path) -> list[dict[str, Any]]:
    return [line for line in manifests.lines(path) if "sweep" in line]


def _difference(keys: Any, headers: dict[str, dict[str, Any]]) -> str:
    """In what the sweeps of these keys differ, as far as their manifests tell."""
    known = [headers[key]["sweep"] for key in keys if key in headers]
    if len(known) < 2:
        return ""
    names = [name for name in known[0] if len({json.dumps(one.get(name)) for one in known}) > 1]
    return f", which differ in {', '.join(names) or 'their chunk'}"


def _same_sweep(output: Path, header: dict[str, Any], study: Study | None) -> tuple[Grid, Keep]:
    """The grid of the sweep as it is known here, which must be what the shards knew."""
    spec = from_text(header["specification"], header["file"], study)
    grid, keep = plan(spec, header["sweep"]["keep"], any_option=header["sweep"]["any_option"] == "yes")
    here = manifests.identity(grid, keep)
    differ = [name for name in _SAME_HERE if here[name] != header["sweep"][name]]
    if differ:
        raise InputError(
            f"output {output}", f"parts with another {', '.join(differ)} than here", "the same code and catalogue",
            "merge where the shards ran, or run them again here with --fresh",
        )  # fmt: skip
    return grid, keep


def _whole(output: Path, blocks: list[range], n_outer: int) -> list[range]:
    """The blocks, which must hold every index exactly once."""
    reached = 0
    for block in [*blocks, range(n_outer, n_outer)]:
        if block.start > reached:
            raise _incomplete(output, range(reached, block.start), "nothing")
        if block.start < reached:
            raise _incomplete(output, range(block.start, reached), "two parts")
        reached = block.stop
    return blocks


def _incomplete(output: Path, block: range, got: str) -> InputError:
    return InputError(
        f"output {output}", f"{got} for the outer indices {block.start:,} to {block.stop - 1:,}",
        "each index exactly once", "run the missing shard again, then merge",
    )  # fmt: skip
