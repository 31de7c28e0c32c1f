"""The page on software stacks, from the fit that it tells."""
