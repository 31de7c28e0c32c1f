"""Calibration: parameters of the model fitted to measurements; :mod:`dse.calibrate.jobs` says which to what."""

from dse.calibrate.fit import Fit, Parameter, Problem, folds

__all__ = ["Fit", "Parameter", "Problem", "folds"]
