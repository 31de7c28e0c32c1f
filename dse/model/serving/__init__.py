"""Serving: an engine's step as the one primitive, and closed forms of load, memory and latency over it."""
