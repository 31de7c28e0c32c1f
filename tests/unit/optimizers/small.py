"""Small spaces of the real model, and methods run on one."""

import dataclasses

import numpy as np

from dse.optimizers import problem
from dse.optimizers.driver import METHODS, driver
from dse.spec import search as spec

DENSE = """
[workload]
name = "gpt-3-13b"
global_batch = 128
[system]
name = "selene"
n_devices = 64
[axes]
tp = [1, 2, 4, 8]
pp = "divisors"
micro_batch = [1, 2, 4]
recompute = ["none", "selective", "full"]
zero_stage = [0, 1]
"""
HARDWARE = (
    DENSE
    + """
"memory.bandwidth" = { from = "1 TB/s", to = "3 TB/s", count = 5 }
"memory.capacity" = { from = "40 GB", to = "80 GB", count = 3 }
"scale_out.bandwidth" = { from = "10 GB/s", to = "50 GB/s", count = 4 }
"power.clock" = { from = "800 MHz", to = "1400 MHz", count = 4 }
"""
)
BUDGET = (
    HARDWARE
    + """
[constraints]
all = ["memory.bandwidth * 1e-12 + memory.capacity * 25e-12 + scale_out.bandwidth * 20e-12 <= 3.5"]
"""
)
MIXED = """
[workload]
global_batch = 64
seq_len = 2048
[system]
name = "eos"
n_devices = 16
[axes]
workload = ["llama-3-8b", "deepseek-v2-lite", "mixtral-8x7b"]
tp = [1, 2, 8]
pp = [1, 2]
ep = [1, 2, 8]
imbalance = [1.0, 1.25, 1.5]
"scale_up.bandwidth" = { from = "200 GB/s", to = "450 GB/s", count = 4 }
recompute = ["none", "full"]
overlap_dp = [false, true]
"""
TEXT = """
title = "a small search"
[workload]
name = "gpt-3-13b"
global_batch = 128
[system]
name = "selene"
n_devices = 64
[software]
any_option = true
[axes]
tp = "divisors"
pp = "divisors"
micro_batch = "divisors"
virtual_stages = "divisors"
recompute = ["none", "selective", "full"]
zero_stage = [0, 1, 2, 3]
sequence_parallel = [false, true]
overlap_dp = [false, true]
overlap_tp = [false, true]
[search]
method = METHODS
seeds = 32
"""


def small_problem():
    """The problem of all methods; medians of fewer seeds are a matter of luck."""
    return problem.build(spec.from_text(TEXT.replace("METHODS", str(list(METHODS)))))


def searched(task, name, evaluations, seeds=None):
    """A method's driver after so many evaluations of each seed."""
    if seeds is not None:
        task = dataclasses.replace(task, spec=dataclasses.replace(task.spec, seeds=tuple(range(seeds))))
    one = driver(task, name)
    steps, done = evaluations // one.batch, 0
    while done < steps:
        count = min(one.chunk, steps - done)
        one.advance(done, count)
        done += count
    return one


def best_of(one):
    """[seed] best value, infinite where nothing feasible was met."""
    return np.where(np.asarray(one.best.evaluation.violation) == 0, np.asarray(one.best.value), np.inf)
