"""Name of the distribution: ``import dse`` and the command ``dse`` are installed by ``llm-dse``.

The name ``dse`` of the package index is another project's, whose files would replace these. Nor does the index have
``llm-dse`` before the first release, so until then an installation is of a checkout or of a wheel.
"""

from __future__ import annotations

#: Name of the distribution in ``pyproject.toml``.
NAME = "llm-dse"


def is_released() -> bool:
    """True where the installed distribution states the address of its project, which a released one has."""
    from importlib import metadata  # takes longer than all that a command without errors needs of this file

    try:
        return bool(metadata.metadata(NAME).get_all("Project-URL"))
    except metadata.PackageNotFoundError:
        return False


def install_extra(extra: str) -> str:
    """Return the text of how an extra is installed, as the fix of an error.

    >>> install_extra("report")
    "install the extra report: pip install -e '.[report]' in a checkout, or pip install 'dist/llm_dse-…whl[report]'"
    """
    if is_released():
        return f"install the extra {extra}: pip install '{NAME}[{extra}]'"
    wheel = f"dist/{NAME.replace('-', '_')}-…whl[{extra}]"
    return f"install the extra {extra}: pip install -e '.[{extra}]' in a checkout, or pip install '{wheel}'"
