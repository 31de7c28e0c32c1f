"""What one device or one network does with an operator or a message: time and energy.

Knows kernels (`roofline.py`, `rates.py`, `attention_kernels.py`), networks (`routes.py`, `collectives.py`), clock and
power (`power.py`), and generated chips (`technology.py`); nothing of layers or steps. Files named `*_kernels.py` time
isolated kernels as benchmarks measure them.

Start with `roofline.py` for operators and `collectives.py` for messages.
"""
