"""A specification as a grid: values, index, design."""
