"""Memory, energy, bounds and feasibility of a step, and runs with failures."""
