"""What to choose and what to measure, given how sure figures are.

``choice`` compares designs by joint draws of their metric, over stated ``scenarios`` and after measured rows
(``evidence``); ``plans`` does so for fleets and clusters, ``running`` for the designs that a sweep keeps. Start with
``choice.decide``.
"""
