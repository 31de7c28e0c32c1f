"""``python -m docs.make.studies docs/studies.md``: the page of claims; ``--claim NAME`` prints claims alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from docs.make.command import command
from docs.make.markdown import publish


def main() -> None:
    """Do what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("page", type=Path, nargs="?", metavar="PAGE.md", help="the page to write")
    what.add_argument("--claim", metavar="NAME", help="print the claims whose names begin so, and write nothing")
    asked = parser.parse_args()
    from docs.make.studies.page import page, rows_of

    if asked.page:
        publish(asked.page, page(rows_of(""), command("docs.make.studies")))
        return
    for row in rows_of(asked.claim):
        print(f"{row.claim.name}: {row.claim.what}: ours {row.ours}, published {row.claim.published}: {row.verdict}")
        for case in row.claim.cases:
            print(f"  {case.command()}")


if __name__ == "__main__":
    main()
