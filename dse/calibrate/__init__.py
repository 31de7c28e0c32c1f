"""Calibration: parameters of the model fitted to measurements by gradient."""

from dse.calibrate.fit import Fit, Parameter, fit, folds

__all__ = ["Fit", "Parameter", "fit", "folds"]
