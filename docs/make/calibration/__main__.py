"""``python -m docs.make.calibration docs/calibration.md CASES.csv … -o FILE.toml``: the fit to steps, and its page.

Next to the page its errors by source and by chip, which the accuracy page quotes.
"""

from __future__ import annotations

import json

from docs.make.command import command, page_parser, with_fit
from docs.make.markdown import publish


def main() -> None:
    """Do what the arguments say."""
    asked = with_fit(page_parser(__doc__)).parse_args()
    from docs.make.calibration.page import errors_by_chip, page
    from dse.lab.fits import jobs, stacks

    found, *_ = jobs.run(asked.tables, asked.folds, asked.output, asked.catalog)
    publish(asked.page, page(found, command("docs.make.calibration")))
    by_source = {e.source: e._asdict() for e in stacks.errors_by_source(found)}
    not_seen = {"sources": by_source, "chips": errors_by_chip(found)}
    asked.page.with_suffix(".json").write_text(json.dumps(not_seen, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
