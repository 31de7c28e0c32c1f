"""The catalogue's own fits: kernels, links, clocks, engines. Not in the wheel; ``dse calibrate`` has them run here.

All state the problem of :mod:`dse.lab.fits.fit`, with parameters, priors and devices in ``parameters.toml``:
``kernels`` (with ``kernel_parameters`` and ``kernel_tables``), ``power`` and ``engines`` (with ``kin`` and
``engine_residuals``) are the jobs of ``jobs``. ``left_out`` has the errors of rows without their group, ``widths``
and ``scores`` what intervals and forecasts make of them, ``replay`` the order of measurements, ``own_stacks`` stacks
of a few rows, ``cdna2`` one factor of steps on Frontier. Start with ``jobs``.
"""
