"""What to measure before a decision: runs and kernels on offer, and what each of them is worth."""

from dse.lab.decide.candidates import Machine, offered
from dse.lab.decide.worth import Belief, Candidate, Step, measurement_value, order

__all__ = [
    "Belief",
    "Candidate",
    "Machine",
    "Step",
    "measurement_value",
    "offered",
    "order",
]
