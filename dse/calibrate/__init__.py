"""Calibration of model parameters to measurements; jobs: :mod:`dse.calibrate.jobs`."""

from dse.calibrate.fit import Fit, FitProblem, Parameter, folds

__all__ = ["Fit", "FitProblem", "Parameter", "folds"]
