"""Everything that reads a results file, as functions of its path; each ends well or raises InputError."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

Reader = Callable[[Path], None]


def opened(path: Path) -> None:
    """``dse.open_results``, all of it; and what it is suited to."""
    import dse
    from dse.views import plot

    with dse.open_results(path) as found:
        found.load()
        plot.suited(found)
        repr(found)


def overview(path: Path) -> None:
    """``dse.overview`` of the file and of its dataset."""
    import dse

    dse.overview(path)
    with dse.open_results(path) as found:
        dse.overview(found)


def figure(kind: str) -> Reader:
    """``dse plot --kind``: drawn, and written as a picture."""

    def draw(path: Path) -> None:
        import dse
        from dse.views import plot

        with dse.open_results(path) as found:
            plot.save(plot.KINDS[kind](found), path.with_suffix(".svg"), force=True)

    return draw


def report(path: Path) -> None:
    """``dse report``."""
    import dse
    from dse.lab import page as pages

    with dse.open_results(path) as found:
        pages.write(path.with_suffix(".html"), found, points=1000, force=True)


def difference(other: Path) -> Reader:
    """``dse.diff`` with a file that is whole, either way, and as it is printed."""

    def differ(path: Path) -> None:
        import dse

        for first, second in ((other, path), (path, other)):
            found = dse.diff(first, second)
            str(found), found.to_html(), json.dumps(found.to_dict(), allow_nan=False)

    return differ


def resumed(specification: Path, keep: str) -> Reader:
    """``dse run`` onto the file, which bears a seal: it is shown, or made again."""

    def run(path: Path) -> None:
        from dse.io.files import seal
        from dse.sweep import perform

        copy = path.with_name("resumed.nc")
        copy.write_bytes(path.read_bytes())
        seal(copy)
        summary = perform(specification, copy, keep=keep)[1]
        assert summary.n_designs > 0

    return run


def every(other: Path) -> dict[str, Reader]:
    """Name → reader, but for runs onto the file."""
    from dse.views import plot

    found: dict[str, Reader] = {"open": opened, "overview": overview}
    found |= {f"plot {kind}": figure(kind) for kind in plot.KINDS}
    return found | {"report": report, "diff": difference(other)}
