"""Event-driven schedule of a training step: order of passes per stage, timeline, and Chrome trace.

Plain Python for one design, separate from the model, whose closed forms are tested against it.
"""
