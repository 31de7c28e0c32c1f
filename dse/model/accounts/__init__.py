"""What a step holds, burns and costs, and whether it can run."""
