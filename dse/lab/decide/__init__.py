"""What to measure before a decision: runs and kernels on offer, and what each of them is worth."""

from dse.lab.decide.candidates import Machine, measurement_offer
from dse.lab.decide.worth import Belief, MeasurementCandidate, RankedMeasurement, measurement_order, measurement_value

__all__ = [
    "Belief",
    "Machine",
    "MeasurementCandidate",
    "RankedMeasurement",
    "measurement_offer",
    "measurement_order",
    "measurement_value",
]
