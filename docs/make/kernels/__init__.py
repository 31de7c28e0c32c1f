"""The page on measured kernels, from the fit that they tell."""
