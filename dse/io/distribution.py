"""Name of the distribution: ``import dse`` and the command ``dse`` are installed by ``llm-dse``.

The name ``dse`` of the package index is another project's, whose files would replace these.
"""

from __future__ import annotations

#: Name of the distribution in ``pyproject.toml``.
NAME = "llm-dse"


def with_extra(extra: str) -> str:
    """The requirement of the package with one of its extras.

    >>> with_extra("report")
    'llm-dse[report]'
    """
    return f"{NAME}[{extra}]"


def install_extra(extra: str) -> str:
    """The command that installs an extra.

    >>> install_extra("report")
    "pip install 'llm-dse[report]'"
    """
    return f"pip install '{with_extra(extra)}'"
