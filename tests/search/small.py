"""A small space of the real model, and methods run on it."""

import dataclasses

import numpy as np

from dse.search import problem
from dse.search.driver import driver
from dse.search.methods import METHODS
from dse.spec import search as spec

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
