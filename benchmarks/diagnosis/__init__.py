"""Faults put into traces of known steps, and whether ``dse diagnose`` names them and their seconds."""
