"""What the power limit of a chip leaves of its clock and of its rates, by number format."""

from __future__ import annotations

from typing import NamedTuple

from docs.make.markdown import filed
from dse.designs import catalog
from dse.measured.kernels.formulas import gemm_of
from dse.model.machine.gemm_kernels import gemm_time
from dse.model.machine.kernel_power import gemm_demand, gemm_power, limited_clock, sustained_gemm_time
from dse.model.machine.rates import matrix_rate
from dse.types import Accelerator, Precision

#: Side of the square product.
SIZE = 8192.0
_FORMATS = (Precision.fp16, Precision.fp8, Precision.nvfp4)

_TEXT = """\
A square product of {size:.0f} in back-to-back repetition, at its own board's limit: clock over the nominal one, power,
and the rate over that of a short run at the nominal clock, of every accelerator as sold. Energies of a FLOP by format,
voltage and limit are the chip's; none is fitted to a training step.

"""


class Sustained(NamedTuple):
    """A repeated product under the limit as sold."""

    clock: float  #: over the nominal one
    power: float  #: W
    rate: float  #: FLOP/s
    share: float  #: of the rate of a short run


def sustained(accelerator: Accelerator, precision: Precision) -> Sustained | None:
    """The product in a format, None where the chip has no such rate."""
    if float(matrix_rate(accelerator, float(precision))) <= 0.0:
        return None
    gemm = gemm_of((SIZE, SIZE, SIZE, float(precision)), accelerator)
    time = float(sustained_gemm_time(gemm, accelerator))
    return Sustained(
        float(limited_clock(gemm_demand(gemm, accelerator), accelerator)),
        float(gemm_power(gemm, accelerator)),
        2.0 * SIZE**3 / time,
        float(gemm_time(gemm, accelerator)) / time,
    )


def section() -> tuple[str, str]:
    """Title and text with the table."""
    rows = []
    for name in catalog.names("accelerator"):
        accelerator = catalog.record(Accelerator, name)
        if accelerator.chip is not None or accelerator.kernels.fine is None:
            continue
        for precision in _FORMATS:
            one = sustained(accelerator, precision)
            if one is not None:
                cells = [
                    f"{one.clock:.2f}",
                    f"{one.power:.0f} W",
                    f"{one.rate / 1e12:,.0f} TFLOP/s",
                    f"{one.share:.2f}",
                ]
                rows.append([name, precision.name, *cells])
    header = ["accelerator", "format", "clock", "power", "rate", "of a short run"]
    return "What a limit leaves, by format", _TEXT.format(size=SIZE) + filed("energy_rates", header, rows)
