"""``python -m docs.make.energy docs/energy.md CASES.csv … -o FILE.toml``: the fit to power, its page and figure."""

from __future__ import annotations

from docs.make.command import command, page_parser, with_fit


def main() -> None:
    """Do what the arguments say."""
    asked = with_fit(page_parser(__doc__)).parse_args()
    from calibration.jobs import JOBS
    from docs.make.energy import caps, rates, runs, savings
    from docs.make.energy.page import write_page
    from dse.lab.fits import jobs

    found, *_ = jobs.run(asked.tables, asked.folds, asked.output, asked.catalog, jobs=JOBS)
    sections = [runs.section(), rates.section(), caps.section(found), savings.section()]
    write_page(asked.page, found, command("docs.make.energy"), sections)


if __name__ == "__main__":
    main()
