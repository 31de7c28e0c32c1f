"""What to measure before a decision: runs and kernels on offer, and what each of them is worth."""
