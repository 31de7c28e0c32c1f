"""Devices for a service or a run: pools, replicas, and the cheapest plans."""
