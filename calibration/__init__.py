"""The catalogue's own fits: kernels, links, clocks, engines. Not in the wheel; ``dse calibrate`` has them run here."""
