"""Time of a training step from its parts."""
