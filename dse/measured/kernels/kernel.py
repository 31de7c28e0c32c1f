"""One measured kernel as numbers."""

from __future__ import annotations

import dataclasses
import math

#: Metrics of kernels.
TIME, POWER = METRICS = ("kernel_time", "kernel_power")
#: Suffix of the kind of a kernel with measured power.
_POWER = "_power"


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One measured kernel: kind, device, inputs of its formula, and the measured value.

    The value is its time in s, or for kinds that end in ``_power`` the board power in W in repetition.
    """

    kind: str
    device: str
    values: tuple[float, ...]
    measured: float = math.nan
    label: str = ""  #: class for error statistics (number format, collective …)

    @property
    def metric(self) -> str:
        """Metric of the measured value."""
        return POWER if self.kind.endswith(_POWER) else TIME

    @property
    def base(self) -> str:
        """Kind of the kernel without the suffix of the measured quantity."""
        return self.kind.removesuffix(_POWER)

    def with_power(self, watts: float) -> Kernel:
        """Return the kernel with its measured power in W."""
        return dataclasses.replace(self, kind=self.base + _POWER, measured=watts)
