"""What the package is called where it is installed from: ``import dse`` and the command ``dse`` come with ``llm-dse``.

The name ``dse`` of the package index is another project's, whose files would take the place of these.
"""

from __future__ import annotations

#: Name of the distribution, as ``pyproject.toml`` has it.
NAME = "llm-dse"


def with_extra(extra: str) -> str:
    """The requirement of the package with one of its extras.

    >>> with_extra("report")
    'llm-dse[report]'
    """
    return f"{NAME}[{extra}]"


def install_extra(extra: str) -> str:
    """The line that installs an extra.

    >>> install_extra("report")
    "pip install 'llm-dse[report]'"
    """
    return f"pip install '{with_extra(extra)}'"
