"""What the command lines of the page generators share."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path


def page_parser(about: str | None) -> argparse.ArgumentParser:
    """A parser whose first argument is the page to write; ``about`` is the docstring of the generator."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("page", type=Path, metavar="PAGE.md", help="the page to write")
    return parser


def with_fit(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser with the arguments of pages that tell of a fit, which is written where ``dse calibrate`` would."""
    parser.add_argument("tables", type=Path, nargs="+", metavar="CASES.csv", help="measured rows")
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="FILE.toml", help="where the fit goes")
    parser.add_argument("--catalog", type=Path, metavar="FOLDER", help="also replace the values of this catalogue")
    parser.add_argument("--folds", type=int, default=0, help="cross-validate over so many groups of rows")
    return parser


def command(module: str) -> str:
    """The command that runs a generator with the arguments of this process, as its page names it."""
    return shlex.join(["python", "-m", module, *sys.argv[1:]])
