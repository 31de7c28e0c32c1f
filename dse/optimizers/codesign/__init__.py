"""Continuous hardware by gradient outside, the exact best mapping of every workload inside.

``problem`` makes it of a specification, ``hardware`` has the variables with bounds, shares and budget, ``inner`` the
best mappings and slopes at a chip, ``descent`` the steps, ``chip`` what is reported. Start at ``descent.search``.
"""
