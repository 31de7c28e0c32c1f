"""A step event by event: the order of every stage's passes, when they run, and the timeline as a trace of Chrome.

Plain Python for one design at a time, outside of the model, whose closed forms are tested against it.
"""
