"""Files, inputs and outputs, cache, TOML, interruption, and quantities as users write them.

It answers how a user's file is read within limits (``inputs.py``, ``toml.py``), which files may be replaced and how
they are written whole (``outputs.py``, ``files.py``), what outlives a process (``cache.py``), what Ctrl-C does
(``interruption.py``), who joins by entry points (``plugins.py``), and how numbers are written for people
(``quantities.py``).

It knows the machine and nothing of designs; settings of JAX stand in ``environment.py``, processes in ``workers.py``.

Start with ``outputs.py`` for files, with ``quantities.py`` for numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dse.surface import attribute

if TYPE_CHECKING:
    from dse.io.cache import get_or_compute as get_or_compute
    from dse.io.distribution import install_extra
    from dse.io.environment import fuse_outputs
    from dse.io.files import atomic_file as atomic_file
    from dse.io.interruption import reporting
    from dse.io.outputs import check_output, disk_errors as disk_errors, replacing as replacing
    from dse.io.quantities import counted, digits, duration, percent, quantity, seconds, setting
    from dse.io.workers import local_cluster
else:

    def __getattr__(name: str) -> Any:
        return attribute(__name__, name)


__all__ = [
    "check_output",
    "counted",
    "digits",
    "duration",
    "fuse_outputs",
    "install_extra",
    "local_cluster",
    "percent",
    "quantity",
    "reporting",
    "seconds",
    "setting",
]
