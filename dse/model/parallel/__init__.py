"""How the parts of a step overlap and wait."""
