"""Overlap and waiting of the parts of a step.

Answers how much of messages, transfers and pipeline stages a step waits for: `layer.py` within a layer, `pipeline.py`
between stages, `data.py` between replicas, `swaps.py` on the link to the host. Closed forms; event-driven schedules of
the tests and of `dse trace` are their oracles.
"""
