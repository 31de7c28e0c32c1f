"""One measured kernel as numbers."""

from __future__ import annotations

import dataclasses
import math

#: Metrics of kernels.
TIME, POWER = METRICS = ("kernel_time", "kernel_power")
#: What ends the kind of a kernel whose power was measured.
_POWER = "_power"


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One measured kernel: its kind, the device as named, the numbers its formula takes, and what was measured of it.

    That is its time in s or, of a kind that ends in ``_power``, the board's power in W while it repeats.
    """

    kind: str
    device: str
    values: tuple[float, ...]
    measured: float = math.nan
    label: str = ""  #: class of it that errors are told by (number format, collective …)

    @property
    def metric(self) -> str:
        """Metric of what was measured."""
        return POWER if self.kind.endswith(_POWER) else TIME

    @property
    def base(self) -> str:
        """What ran: the kind, whatever was measured of it."""
        return self.kind.removesuffix(_POWER)

    def drawing(self, watts: float) -> Kernel:
        """The same kernel with its measured power."""
        return dataclasses.replace(self, kind=self.base + _POWER, measured=watts)
