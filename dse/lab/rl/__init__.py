"""Post-training by reinforcement learning: one step of it, its demand, and the mapping of its devices."""
