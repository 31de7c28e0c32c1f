"""Finished parts on disk.

``parts`` keeps the result of each block in ``<output>.parts/``, whole or not there (``arrays``), under one lock an
output; ``manifest`` says who computed what. A part is believed only if its name, its content and everything it
depends on agree.
"""
