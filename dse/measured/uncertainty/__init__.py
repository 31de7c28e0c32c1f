"""How sure a figure is: distance from measured rows, spreads of leaves, prices, one posterior of all, intervals."""
