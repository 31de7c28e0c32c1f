"""Serving beside what others published: systems of the literature, and the formulas of two peers."""
