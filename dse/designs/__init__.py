"""From names to a design: catalogue, records, leaves by path, what is refused, what lies outside of calibration."""
