"""What is done and sent in a step, as data: kernels, operators."""

from __future__ import annotations

from typing import NamedTuple

from dse.types.choices import OperatorKind
from dse.types.fields import Scalar


class Work(NamedTuple):
    """One kernel's work: FLOPs, bytes through device memory and, for matrix kernels, its GEMM shape."""

    flops: Scalar
    bytes: Scalar
    rows: Scalar = 1.0
    columns: Scalar = 1.0
    depth: Scalar = 1.0
    batch: Scalar = 1.0


class Operator(NamedTuple):
    """One operator of a layer.

    Attributes:
        name: what a breakdown shows.
        kind: which units of the device run it, and with it which roofline applies.
        forward, input_gradient, weight_gradient: the work of each pass; None where a pass has none.
        stored: bytes kept from the forward for the backward pass.
        present: 1 where the design has this operator, else 0.
        core: whether selective recompute repeats it (the attention core).
    """

    name: str
    kind: OperatorKind
    forward: Work
    input_gradient: Work | None
    weight_gradient: Work | None
    stored: Scalar
    present: Scalar = 1.0
    core: bool = False

    @property
    def gradients(self) -> list[Work]:
        """The work of the backward pass, kernel by kernel."""
        return [work for work in (self.input_gradient, self.weight_gradient) if work is not None]
