"""``python -m docs.make.search docs/search.md``: the page and its figure from the record ``search.json`` beside it."""

from __future__ import annotations

import json

from docs.make.command import page_parser
from docs.make.markdown import publish
from docs.make.search import figure, page

if __name__ == "__main__":
    asked = page_parser(__doc__).parse_args()
    record = json.loads(asked.page.with_suffix(".json").read_text(encoding="utf-8"))
    figure.draw(record, asked.page.with_suffix(".png"))
    publish(asked.page, page.page(record))
