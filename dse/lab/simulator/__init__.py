"""Simulation of a serving engine request by request, with the model's own step time.

Plain Python and NumPy for one design, outside ``jit``: the scheduler of vLLM and SGLang, event by event. The closed
forms of ``dse.model.serving`` are tested against it.
"""
