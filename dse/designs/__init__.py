"""Designs from names: catalogue, records, leaves by path, checks, range of calibration."""
