"""Memory, energy, bounds and feasibility of a step, and runs with failures.

Answers what a training step costs besides its time, and why it cannot run. Every account is a fold over the ledger of
`dse.model.work`, at the clock of `dse.model.steps.operating`.

Start with `memory.py` (peak by stage) and `energy.py`; `feasibility.py` has the bits of reasons.
"""
