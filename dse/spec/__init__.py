"""The documents a user writes: sweeps and searches."""
