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


class Product(NamedTuple):
    """A square product in back-to-back repetition, under the limit of its board."""

    clock: float  #: over the nominal one, that the limit leaves
    power: float  #: W
    time: float  #: seconds at that clock
    slower: float  #: over that of a short run at the nominal clock


def product(accelerator: Accelerator, precision: Precision, size: float = SIZE) -> Product:
    """The product in a format that the chip has."""
    gemm = gemm_of((size, size, size, float(precision)), accelerator)
    time = float(sustained_gemm_time(gemm, accelerator))
    clock = float(limited_clock(gemm_demand(gemm, accelerator), accelerator))
    return Product(clock, float(gemm_power(gemm, accelerator)), time, time / float(gemm_time(gemm, accelerator)))


def section() -> tuple[str, str]:
    """Title and text with the table."""
    rows = []
    for name in catalog.names("accelerator"):
        accelerator = catalog.record(Accelerator, name)
        if accelerator.chip is not None or accelerator.kernels.fine is None:
            continue
        for precision in _FORMATS:
            if float(matrix_rate(accelerator, float(precision))) > 0.0:
                one = product(accelerator, precision)
                rate = f"{2e-12 * SIZE**3 / one.time:,.0f} TFLOP/s"
                cells = [f"{one.clock:.2f}", f"{one.power:.0f} W", rate, f"{1.0 / one.slower:.2f}"]
                rows.append([name, precision.name, *cells])
    header = ["accelerator", "format", "clock", "power", "rate", "of a short run"]
    return "What a limit leaves, by format", _TEXT.format(size=SIZE) + filed("energy_rates", header, rows)
