"""Time of a training step from its parts.

Answers the seconds of a step by part (`training.py`), of one layer and micro-batch (`layer.py`), and the clock at which
the power limit lets repeated work run (`operating.py`, which engines use too). Start with `training.step_time`.
"""
