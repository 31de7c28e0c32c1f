"""The documents a user writes: sweeps, searches and co-designs."""
