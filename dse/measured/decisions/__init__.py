"""What to choose and what to measure, given how sure figures are."""
