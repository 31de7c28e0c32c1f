"""The documents a user writes: sweeps, searches, co-designs."""
