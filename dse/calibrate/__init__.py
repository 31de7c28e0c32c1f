"""Calibration: parameters of the model fitted to measurements; :mod:`dse.calibrate.jobs` says which to what."""

from dse.calibrate.fit import Fit, FitProblem, Parameter, folds

__all__ = ["Fit", "FitProblem", "Parameter", "folds"]
