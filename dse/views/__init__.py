"""Views of designs and results: explanations, figures, the explorer, traces, differences, lists of names."""
