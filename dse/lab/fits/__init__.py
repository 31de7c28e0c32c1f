"""Calibration of model parameters to measurements: a problem of fits, and what is fitted and written with it.

Answers which values of stacks, chips and links measured rows ask for, how far the rows narrow them, and how large the
errors of rows are that a fit has not seen. One statement serves all fits: ``fit.FitProblem`` (residuals and slopes of
rows, weights, priors) with its solver, posterior and held-out errors; parameters and priors are ``parameters.toml``.
``steps``, ``experts`` and ``levels`` state it for training steps (rows and slopes: ``step_rows``), the package
``calibration`` of a checkout for kernels, power and engines. ``own`` fits a stack to a few runs of a user, ``adding``
moves values by a few rows without a fit, single kernels those of the chip alone. ``writing`` writes all of them into
a catalogue. It knows the catalogue, designs, measured rows and their uncertainty, not commands.

Start with ``fit``, then ``jobs``, the table of kinds of rows and their fits.
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
