"""Continuous hardware by gradient outside, the exact best mapping of every workload inside."""
