"""The page on power limits and clocks, from the fit that they tell."""
