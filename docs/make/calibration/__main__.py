"""``python -m docs.make.calibration docs/calibration.md CASES.csv … -o FILE.toml``: the fit to steps, and its page.

Beside the page its errors by source, which the accuracy page quotes.
"""

from __future__ import annotations

import json

from docs.make.command import command, page_parser, with_fit


def main() -> None:
    """Do what the arguments say."""
    asked = with_fit(page_parser(__doc__)).parse_args()
    from docs.make.calibration.page import page
    from dse.calibrate import jobs, stacks

    found, *_ = jobs.run(asked.tables, asked.folds, asked.output, asked.catalog)
    asked.page.write_text(page(found, command("docs.make.calibration")), encoding="utf-8")
    by_source = {e.source: e._asdict() for e in stacks.errors_by_source(found)}
    asked.page.with_suffix(".json").write_text(json.dumps(by_source, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
