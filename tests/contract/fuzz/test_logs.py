"""Logs and results of tools made wrong are read, or refused in four parts, within two seconds and 300 MB each."""

from __future__ import annotations

import random
import resource
import time
import tracemalloc
from pathlib import Path

import pytest

from dse.measured import profiles
from tests.conftest import full_size
from tests.contract.fuzz.mutants import error_of
from tests.contract.fuzz.test_recipes import LARGEST, LONGEST, PIECES, mutant
from tests.unit.measured import profiles as files, test_logs, test_profiles

#: Form → a small file of it, made up.
SAMPLES = {name: text for name, text in test_profiles.SAMPLES.items() if not name.startswith(("kineto", "tpu", "gpu"))}
SAMPLES |= {
    "mlperf.log": files.mlperf(),
    "golden.json": files.golden(),
    "wandb.csv": files.wandb(),
    "table.txt": files.serving_table(),
    "aiperf.json": files.aiperf(),
    "decode.log": test_logs.decoding([(32, 900.0), (32, 1600.0), (32, 1602.0), (64, 2560.0)]),
    "two.log": files.megatron([9000, 4000, 1100, 1090]) + files.megatron([900, 400, 210, 212]),
    "glued.txt": files.nccl_glued(),
}

_PIECES = (*PIECES, '"values": ', "Namespace(", "Decode batch, #running-req: ", "1" * 5000, "%", ":::MLLOG {", " - ")


def fault(path: Path, beside: list[Path]) -> str:
    """Return what is wrong with how a file is taken, "" for nothing."""

    def take() -> None:
        found = profiles.read([path, *beside])
        for rows in found.tables.values():
            assert all(0.0 < float(row.get("value") or row["latency_ms"]) < float("inf") for row in rows)

    start, peak = time.process_time(), _peak()
    if words := error_of(take):
        return words
    seconds = time.process_time() - start
    grown = _peak() - peak
    return f"{seconds:.1f} s, {grown:,} B" if seconds > LONGEST or grown > LARGEST else ""


def _peak() -> int:
    """Return the most bytes that the process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_mutants_of_logs(tmp_path, name):
    rng = random.Random(f"logs {name}")
    path, run = tmp_path / name, tmp_path / "run.log"
    run.write_text(SAMPLES["megatron.log"])
    beside = [run] if name in test_profiles.OF_RUNS else []
    profiles.read([run])  # what is loaded once
    wrong = []
    for _ in range(full_size(12, 2000)):
        (text,) = mutant(rng, {name: SAMPLES[name]}, _PIECES).values()
        path.write_text(text, encoding="utf-8", errors="replace")
        if words := fault(path, beside):
            wrong.append((words, text))
    assert not wrong, [(words, text[:600]) for words, text in wrong[:2]]


#: Form → what a long file of it repeats.
LONG = {
    "mlperf.log": files.mlperf(), "decode.log": test_logs.decoding([(32, 1600.0)] * 20, start=""),
    "vllm.log": files.VLLM_START, "table.txt": files.serving_table(), "glued.txt": files.nccl_glued(),
    "wandb.csv": files.wandb(), "smi.csv": files.nvidia_smi(),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(LONG))
def test_long_logs_take_little_time_and_memory(tmp_path, name):
    path = tmp_path / name
    path.write_text(LONG[name] * (300_000 // len(LONG[name])), encoding="utf-8")
    beside = [tmp_path / "run.log"] if name in test_profiles.OF_RUNS else []
    for run in beside:
        run.write_text(SAMPLES["megatron.log"])
    assert fault(path, beside) == ""
    tracemalloc.start()  # takes several times as long
    fault(path, beside)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < LARGEST, peak


@pytest.mark.parametrize(
    "filler", ["9" * 60_000, " " * 60_000, "a=" * 30_000, '"x",' * 15_000, "/a" * 30_000, "-" * 60_000]
)
def test_lines_without_end_take_little_time(tmp_path, filler):
    for name, text in SAMPLES.items():
        path = tmp_path / name
        head, middle, tail = text.partition("\n")
        path.write_text(head + middle + filler + "\n" + tail + filler, encoding="utf-8")
        assert fault(path, []) in ("", None), name
