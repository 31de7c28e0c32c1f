"""What designs and results are shown as: explanations, figures, the explorer, traces, differences, lists of names."""
