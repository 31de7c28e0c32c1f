"""The programs that write the generated pages of ``docs/``, one a page: ``python -m docs.make.PAGE docs/PAGE.md``."""
