"""Overlap and waiting of the parts of a step."""
