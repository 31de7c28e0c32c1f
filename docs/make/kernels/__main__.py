"""``python -m docs.make.kernels docs/kernels.md CASES.csv … -o FILE.toml``: the fit to kernels, and its page."""

from __future__ import annotations

from docs.make.command import command, page_parser, with_fit
from docs.make.markdown import publish


def main() -> None:
    """Do what the arguments say."""
    asked = with_fit(page_parser(__doc__)).parse_args()
    from calibration import kernels
    from calibration.jobs import JOBS
    from docs.make.kernels.page import page
    from dse.lab.fits import jobs

    found, *_ = jobs.run(asked.tables, asked.folds, asked.output, asked.catalog, jobs=JOBS)
    publish(asked.page, page(found, command("docs.make.kernels"), kernels.read_kernels(asked.tables)))


if __name__ == "__main__":
    main()
