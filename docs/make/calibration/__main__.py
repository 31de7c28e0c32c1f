"""``python -m docs.make.calibration docs/calibration.md CASES.csv … -o FILE.toml``: the fit to steps, and its page."""

from __future__ import annotations

from docs.make.command import command, page_parser, with_fit
from dse.environment import keep_compiled_programs


def main() -> None:
    """Do what the arguments say."""
    asked = with_fit(page_parser(__doc__)).parse_args()
    keep_compiled_programs()
    from docs.make.calibration.page import page
    from dse.calibrate import jobs

    found, *_ = jobs.run(asked.tables, asked.folds, asked.output, asked.catalog)
    asked.page.write_text(page(found, command("docs.make.calibration")), encoding="utf-8")


if __name__ == "__main__":
    main()
