"""Sizes of the property tests: ``make test`` runs a small one, ``--hypothesis-profile=fuzz`` a long one."""

from hypothesis import settings

settings.register_profile("dse", deadline=None, max_examples=40, derandomize=True)
settings.register_profile("fuzz", deadline=None, max_examples=2000)
settings.load_profile("dse")
