"""Calibration of model parameters to measurements; jobs: :mod:`dse.lab.fits.jobs`."""

from dse.lab.fits.fit import Fit, FitProblem, Parameter, folds

__all__ = ["Fit", "FitProblem", "Parameter", "folds"]
