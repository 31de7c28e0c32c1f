"""What is kept of many designs: the best, the top, fronts, minima, histograms."""
