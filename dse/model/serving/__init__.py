"""Serving: an engine's step as the one primitive, and closed forms of load, memory and latency over it.

Answers latencies, rates, memory, energy and their percentiles of one data-parallel rank of an engine. Knows the ledger
and the machine of training, and nothing of its steps but the solve of the clock.

Start with `work.py` (operators and messages of a step) and `step.py` (its time). `steady.py` is the fixed point of
continuous batching; `loads.py` and `arrivals.py` are the ways that requests arrive; `tails.py` and `reuse.py` stand on
these.
"""
