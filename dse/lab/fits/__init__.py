"""Calibration of model parameters to measurements: a problem of fits, and what is fitted and written with it.

``jobs`` fit what the catalogue states, ``own`` a stack to a few runs, ``adding`` moves values by a few rows; each
writes TOML.
"""

from dse.lab.fits import adding, jobs, own
from dse.lab.fits.adding import Update
from dse.lab.fits.fit import Fit, FitProblem, Parameter, folds
from dse.lab.fits.jobs import Errors
from dse.lab.fits.usage import usage_line as usage_line

__all__ = [
    "Errors",
    "Fit",
    "FitProblem",
    "Parameter",
    "Update",
    "adding",
    "folds",
    "jobs",
    "own",
]
