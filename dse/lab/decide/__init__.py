"""What to measure before a decision: runs and kernels on offer, and what each of them is worth.

Answers which measurement on a machine at hand lowers the expected loss of a decision most, and by which line and row
it is made. ``candidates`` offers kernels, collectives and runs with the effects of the decision's factors on them,
from the posterior of :mod:`dse.measured.uncertainty`; ``worth`` is the value of each alone and in order, in closed
form over one number. It knows designs, launch lines and posteriors; the command is ``dse.lab.commands.measure``.

Start with ``candidates.measurement_offer`` and ``worth.measurement_order``.
"""

from dse.lab.decide.candidates import Machine, measurement_offer
from dse.lab.decide.worth import Belief, MeasurementCandidate, measurement_order, measurement_value

__all__ = [
    "Belief",
    "Machine",
    "MeasurementCandidate",
    "measurement_offer",
    "measurement_order",
    "measurement_value",
]
