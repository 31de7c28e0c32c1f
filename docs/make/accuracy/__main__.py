"""``python -m docs.make.accuracy docs/accuracy.md CASES.csv …``: the page of errors and its figure."""

from __future__ import annotations

from pathlib import Path

from docs.make.command import command, page_parser


def main() -> None:
    """Do what the arguments say."""
    parser = page_parser(__doc__)
    parser.add_argument("tables", type=Path, nargs="+", metavar="CASES.csv", help="measured configurations")
    asked = parser.parse_args()
    from docs.make.accuracy.page import write_page

    write_page(asked.page, asked.tables, command("docs.make.accuracy"))


if __name__ == "__main__":
    main()
